// Finals: the observations that no later step holds, that is what was seen after an end, before data that
// does not follow on, and after the newest step of each lane.
//
// Slot l < lanes is the head slot of lane l: it always has the successor of the lane's newest step, so that the
// successors of one step of all lanes come in with one copy, and are compared with the next step by one comparison.
// The other slots are handed out lowest first, so the memory touched follows the number of live finals. Chunks never
// move and are brought from outside (`add_chunk`), since the core owns no storage.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

namespace relive {

class Finals {
  public:
    // `leaf_bytes`: of one item of every observation leaf.
    Finals(std::size_t lanes, std::vector<std::size_t> leaf_bytes)
        : lanes_(lanes), leaf_bytes_(std::move(leaf_bytes)), high_water_(lanes) {}

    // An array of `slots` items for every observation leaf. The first chunk has room for the head slots.
    void add_chunk(std::size_t slots, std::vector<std::byte*> arrays) {
        if (!std::has_single_bit(slots) || slots < lanes_) {
            throw std::invalid_argument("a chunk of finals holds a power of two of slots, at least one per lane");
        }
        if (!chunks_.empty() && slots != capacity() / chunks_.size()) {
            throw std::invalid_argument("all chunks of finals have the same number of slots");
        }
        if (arrays.size() != leaf_bytes_.size())
            throw std::invalid_argument("a chunk of finals has an array for every leaf");
        if (capacity() + slots > static_cast<std::size_t>(INT32_MAX)) throw std::length_error("too many finals");
        shift_ = std::countr_zero(slots);
        chunks_.push_back(std::move(arrays));
    }

    std::size_t capacity() const noexcept { return chunks_.size() << shift_; }
    // Slots below were handed out at least once (or are head slots).
    std::size_t high_water() const noexcept { return high_water_; }
    std::size_t live() const noexcept { return high_water_ - freed_.size(); }
    // How many more must be brought before `wanted` can be taken.
    std::size_t missing(std::size_t wanted) const noexcept {
        const std::size_t available = capacity() > live() ? capacity() - live() : 0;
        return wanted > available ? wanted - available : 0;
    }

    std::int32_t take() {
        if (!freed_.empty()) {
            const std::int32_t slot = freed_.top();
            freed_.pop();
            return slot;
        }
        if (high_water_ >= capacity()) throw std::logic_error("no final is free");
        return static_cast<std::int32_t>(high_water_++);
    }

    void give_back(std::int32_t slot) { freed_.push(slot); }

    void clear() {
        freed_ = {};
        high_water_ = lanes_;
    }

    // For a restored buffer: slots below `high_water` are live but for `freed`.
    void restore(std::size_t high_water, const std::vector<std::int32_t>& freed) {
        if (high_water < lanes_ || high_water > capacity())
            throw std::invalid_argument("finals do not fit their chunks");
        clear();
        high_water_ = high_water;
        for (const std::int32_t slot : freed) freed_.push(slot);
    }

    std::byte* at(std::size_t leaf, std::int32_t slot) const noexcept {
        const auto s = static_cast<std::size_t>(slot);
        return chunks_[s >> shift_][leaf] + (s & ((std::size_t{1} << shift_) - 1)) * leaf_bytes_[leaf];
    }

  private:
    std::size_t lanes_;
    std::vector<std::size_t> leaf_bytes_;
    std::vector<std::vector<std::byte*>> chunks_;
    int shift_ = 0;  // a chunk has 1 << shift_ slots
    std::size_t high_water_;
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> freed_;
};

}  // namespace relive
