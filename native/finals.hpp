// Finals: the observations that no later step holds, that is what was seen after an end, before data that
// does not follow on, and after the newest step of each lane.
//
// They live in chunks that never move. Chunks are brought from outside (`add_chunk`), since the core owns no
// storage; the lowest free slot is taken first, so the memory touched follows the number of live finals.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <stdexcept>
#include <vector>

#include "layout.hpp"

namespace relive {

class Finals {
  public:
    // `packed` holds `slots` slots of Layout::slot_bytes; `large` one array of `slots` items per large leaf.
    void add_chunk(std::size_t slots, std::byte* packed, std::vector<std::byte*> large) {
        if (!std::has_single_bit(slots)) throw std::invalid_argument("a chunk of finals holds a power of two of slots");
        if (!chunks_.empty() && slots != capacity() / chunks_.size()) {
            throw std::invalid_argument("all chunks of finals have the same number of slots");
        }
        if (capacity() + slots > static_cast<std::size_t>(INT32_MAX)) throw std::length_error("too many finals");
        shift_ = std::countr_zero(slots);
        chunks_.push_back({packed, std::move(large)});
    }

    std::size_t capacity() const noexcept { return chunks_.size() << shift_; }
    std::size_t high_water() const noexcept { return high_water_; }
    std::size_t live() const noexcept { return high_water_ - freed_.size(); }
    std::size_t available() const noexcept { return capacity() - live(); }

    // The caller has made sure that a slot is available.
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
        high_water_ = 0;
    }

    // For a restored buffer: slots [0, high_water) are live but for `freed`.
    void restore(std::size_t high_water, const std::vector<std::int32_t>& freed) {
        if (high_water > capacity()) throw std::invalid_argument("more finals than their chunks hold");
        clear();
        high_water_ = high_water;
        for (const std::int32_t slot : freed) freed_.push(slot);
    }

    std::byte* at(const Leaf& leaf, std::size_t slot_bytes, std::int32_t slot) const noexcept {
        const auto s = static_cast<std::size_t>(slot);
        const Chunk& chunk = chunks_[s >> shift_];
        const std::size_t within = s & ((std::size_t{1} << shift_) - 1);
        return leaf.packed ? chunk.packed + within * slot_bytes + leaf.slot_offset
                           : chunk.large[leaf.chunk_index] + within * leaf.bytes;
    }

  private:
    struct Chunk {
        std::byte* packed;
        std::vector<std::byte*> large;
    };
    std::vector<Chunk> chunks_;
    int shift_ = 0;  // a chunk has 1 << shift_ slots
    std::size_t high_water_ = 0;  // slots below were handed out at least once
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> freed_;
};

}  // namespace relive
