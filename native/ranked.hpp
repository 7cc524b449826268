// Slots in the order of their priorities, for draws by rank (Schaul et al. 2016, arXiv 1511.05952, section 3.3): which
// slot has rank r, which rank has slot s, exactly and after every update.
//
// The order is cut into blocks of at most 256 items; a sum tree over their sizes answers "in which block is rank r".
// It runs from the smallest priority to the largest, so that new steps, which have the largest, are appended.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "sum_tree.hpp"

namespace relive {

// Rank 0 is the largest priority; of equal ones that with the larger number, then in the larger slot, comes first.
// Priorities are no NaN, slots below the capacity, and held or not as a method asks: the caller checks.
class Ranked {
  public:
    explicit Ranked(std::size_t capacity)
        : capacity_(capacity), held_((capacity + 63) / 64), sizes_(most_blocks(capacity)) {
        if (capacity == 0) throw std::invalid_argument("a ranking has room for one slot at least");
        keys_ = zero_pages<Key>(capacity);
    }

    std::size_t capacity() const noexcept { return capacity_; }
    std::size_t size() const noexcept { return size_; }
    bool contains(std::size_t slot) const noexcept { return ((held_[slot / 64] >> (slot % 64)) & 1) != 0; }
    double priority(std::size_t slot) const noexcept { return keys_[slot].priority; }
    std::int64_t number(std::size_t slot) const noexcept { return keys_[slot].number; }

    // 0 where nothing is held.
    double max_priority() const noexcept { return blocks_.empty() ? 0.0 : blocks_.back()->back().priority; }

    void insert(std::size_t slot, double priority, std::int64_t number) {
        assert(slot < capacity_ && !contains(slot));
        prepare();
        keys_[slot] = {priority, number};
        held_[slot / 64] |= std::uint64_t{1} << (slot % 64);
        put(item_of(slot));
    }

    void erase(std::size_t slot) noexcept {
        assert(slot < capacity_ && contains(slot));
        take_out(item_of(slot));
        held_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
    }

    // A new priority for a held slot; its number stays.
    void update(std::size_t slot, double priority) {
        assert(slot < capacity_ && contains(slot));
        prepare();
        take_out(item_of(slot));
        keys_[slot].priority = priority;
        put(item_of(slot));
    }

    // Of equal slots the last one counts.
    void update_many(const std::size_t* slots, const double* priorities, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) fetch(keys_.get() + slots[i]);
        for (std::size_t i = 0; i < size; ++i) update(slots[i], priorities[i]);
    }

    std::size_t at_rank(std::size_t rank) const noexcept {
        std::size_t slot = 0;
        at_ranks(&rank, 1, &slot);
        return slot;
    }

    // The slots of `size` ranks, all below size().
    void at_ranks(const std::size_t* ranks, std::size_t size, std::size_t* out) const noexcept {
        constexpr std::size_t together = 256;
        std::array<double, together> places;
        std::array<double, together> within;
        for (std::size_t begin = 0; begin < size; begin += together) {
            const std::size_t count = std::min(together, size - begin);
            std::size_t* const blocks = out + begin;
            for (std::size_t i = 0; i < count; ++i) {
                assert(ranks[begin + i] < size_);
                places[i] = static_cast<double>(size_ - 1 - ranks[begin + i]);
            }
            sizes_.find_many(places.data(), count, blocks, within.data());
            const auto slot = [&](std::size_t i) {
                return &blocks_[blocks[i]]->items[static_cast<std::size_t>(within[i])].slot;
            };
            for (std::size_t i = 0; i < count; ++i) fetch(slot(i));
            for (std::size_t i = 0; i < count; ++i) blocks[i] = *slot(i);
        }
    }

    std::size_t rank(std::size_t slot) const noexcept {
        assert(slot < capacity_ && contains(slot));
        const Item item = item_of(slot);
        const std::size_t block = block_of(item);
        const auto within = static_cast<std::size_t>(blocks_[block]->place_of(item) - blocks_[block]->begin());
        return size_ - 1 - static_cast<std::size_t>(sizes_.sum_before(block)) - within;
    }

    void clear() noexcept {
        std::fill(held_.begin(), held_.end(), std::uint64_t{0});
        blocks_.clear();
        first_.clear();
        sizes_.clear();
        size_ = 0;
    }

  private:
    static constexpr std::size_t full = 256;
    static constexpr std::size_t half = full / 2;

    struct Key {
        double priority;
        std::int64_t number;
    };

    struct Item {
        double priority;
        std::int64_t number;
        std::size_t slot;

        bool operator<(const Item& other) const noexcept {
            if (priority != other.priority) return priority < other.priority;
            if (number != other.number) return number < other.number;
            return slot < other.slot;
        }
    };

    struct Block {
        std::size_t size = 0;
        std::array<Item, full> items;

        Item* begin() noexcept { return items.data(); }
        Item* end() noexcept { return items.data() + size; }
        const Item& back() const noexcept { return items[size - 1]; }
        Item* place_of(const Item& item) noexcept { return std::lower_bound(begin(), end(), item); }
    };

    // No two neighbours hold `half` or less together, whatever was inserted and erased.
    static std::size_t most_blocks(std::size_t capacity) noexcept { return 2 * (capacity / (half + 1)) + 2; }

    template <class T>
    static void fetch(const T* from) noexcept {
        prefetch(reinterpret_cast<const std::byte*>(from), sizeof(T));
    }

    Item item_of(std::size_t slot) const noexcept { return {keys_[slot].priority, keys_[slot].number, slot}; }

    // The block that has the item, or would take it.
    std::size_t block_of(const Item& item) const noexcept {
        const auto after = std::upper_bound(first_.begin() + 1, first_.end(), item);
        return static_cast<std::size_t>(after - first_.begin()) - 1;
    }

    // All memory that one item more can need, so that nothing can fail half way.
    void prepare() {
        if (!spare_) spare_.reset(new Block);
        if (blocks_.size() == blocks_.capacity()) blocks_.reserve(2 * blocks_.size() + 4);
        if (first_.size() == first_.capacity()) first_.reserve(2 * first_.size() + 4);
    }

    void put(const Item& item) noexcept {
        if (blocks_.empty()) add_block(0, item);
        std::size_t index = block_of(item);
        if (blocks_[index]->size == full) index = make_room(index, item);
        Block& block = *blocks_[index];
        Item* const place = block.place_of(item);
        std::copy_backward(place, block.end(), block.end() + 1);
        *place = item;
        ++block.size;
        ++size_;
        sizes_.set(index, static_cast<double>(block.size));
    }

    void take_out(const Item& item) noexcept {
        const std::size_t index = block_of(item);
        Block& block = *blocks_[index];
        Item* const place = block.place_of(item);
        std::copy(place + 1, block.end(), place);
        --block.size;
        --size_;
        sizes_.set(index, static_cast<double>(block.size));
        if (block.size == 0) {
            drop_block(index);
        } else if (block.size < half) {
            if (index + 1 < blocks_.size() && block.size + blocks_[index + 1]->size <= half) join_next(index);
            if (index > 0 && blocks_[index - 1]->size + blocks_[index]->size <= half) join_next(index - 1);
        }
    }

    // Splits a full block, and says which half takes the item. An item beyond its last begins a block of its own
    // instead, so that appending leaves full blocks.
    std::size_t make_room(std::size_t index, const Item& item) noexcept {
        Block& block = *blocks_[index];
        if (block.back() < item) {
            add_block(index + 1, item);
            return index + 1;
        }
        const Item middle = block.items[half];
        Block& upper = add_block(index + 1, middle);
        std::copy(block.begin() + half, block.end(), upper.begin());
        upper.size = full - half;
        block.size = half;
        sizes_.set(index, static_cast<double>(block.size));
        sizes_.set(index + 1, static_cast<double>(upper.size));
        return item < middle ? index : index + 1;
    }

    void join_next(std::size_t index) noexcept {
        Block& block = *blocks_[index];
        Block& next = *blocks_[index + 1];
        std::copy(next.begin(), next.end(), block.end());
        block.size += next.size;
        sizes_.set(index, static_cast<double>(block.size));
        drop_block(index + 1);
    }

    Block& add_block(std::size_t index, const Item& first) noexcept {
        const auto at = static_cast<std::ptrdiff_t>(index);
        spare_->size = 0;
        blocks_.insert(blocks_.begin() + at, std::move(spare_));
        first_.insert(first_.begin() + at, first);
        count_from(index, blocks_.size());
        return *blocks_[index];
    }

    void drop_block(std::size_t index) noexcept {
        const auto at = static_cast<std::ptrdiff_t>(index);
        const std::size_t before = blocks_.size();
        spare_ = std::move(blocks_[index]);
        blocks_.erase(blocks_.begin() + at);
        first_.erase(first_.begin() + at);
        count_from(index, before);
    }

    // The sizes of blocks that have moved.
    void count_from(std::size_t begin, std::size_t end) noexcept {
        sizes_.set_range(begin, end - begin, [&](std::size_t i) {
            return i < blocks_.size() ? static_cast<double>(blocks_[i]->size) : 0.0;
        });
    }

    std::size_t capacity_;
    std::size_t size_ = 0;
    ZeroPages<Key> keys_;  // by slot
    std::vector<std::uint64_t> held_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<Item> first_;  // of each block but block 0: none of its items is smaller, all of the block before are
    std::unique_ptr<Block> spare_;
    SumTree sizes_;
};

// P(rank i of n) ~ (1 / (i + 1)) ** alpha, for ranks counted from 0.
class RankDistribution {
  public:
    RankDistribution(double alpha, std::size_t capacity) : alpha_(alpha), weights_(capacity) {}

    double alpha() const noexcept { return alpha_; }
    std::size_t capacity() const noexcept { return weights_.capacity(); }

    // Of the first n ranks, whose weights are then known.
    double total(std::size_t n) noexcept {
        grow(n);
        return weights_.sum_before(n);
    }
    double weight(std::size_t rank) const noexcept { return weights_.leaf(rank); }

    double probability(std::size_t rank, std::size_t n) noexcept {
        const double sum = total(n);
        return std::max(weight(rank) / sum, std::numeric_limits<double>::min());
    }

    // The ranks below n, at least 1 and at most the capacity, of uniform draws from [0, 1).
    void draw_many(const double* uniforms, std::size_t size, std::size_t n, std::size_t* out) noexcept {
        const double sum = total(n);
        std::array<double, 256> masses;
        for (std::size_t begin = 0; begin < size; begin += masses.size()) {
            const std::size_t count = std::min(masses.size(), size - begin);
            for (std::size_t i = 0; i < count; ++i) masses[i] = uniforms[begin + i] * sum;
            weights_.find_many(masses.data(), count, out + begin);
            // By the rounding of sums alone a mass may seem to lie beyond.
            for (std::size_t i = 0; i < count; ++i) out[begin + i] = std::min(out[begin + i], n - 1);
        }
    }

    std::size_t draw(double uniform, std::size_t n) noexcept {
        std::size_t rank = 0;
        draw_many(&uniform, 1, n, &rank);
        return rank;
    }

  private:
    // Weights are computed when they are first asked for, some ahead.
    void grow(std::size_t n) noexcept {
        assert(n > 0 && n <= weights_.capacity());
        if (n <= known_) return;
        const std::size_t end = std::min(weights_.capacity(), std::max(n, known_ + 1024));
        weights_.set_range(known_, end - known_, [&](std::size_t rank) {
            // The last rank, too, can be drawn and weighed.
            return std::max(std::pow(static_cast<double>(rank + 1), -alpha_), std::numeric_limits<double>::min());
        });
        known_ = end;
    }

    double alpha_;
    SumTree weights_;
    std::size_t known_ = 0;
};

}  // namespace relive
