// Batch memory that is used again once the last tensor of an earlier batch is gone.
//
// Fresh memory for every batch costs a page fault per 4 kB: four times the copying itself for images. A block is
// taken under the arena's lock and given back, without any lock and from any thread, by the deleter of the last
// tensor that lies in it; `users` alone says whether it is idle. The arena outlives its owner until the last block is back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "fork_mutex.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace relive {

class Arena;

struct Block {
    Arena* arena = nullptr;
    std::byte* data = nullptr;
    std::size_t capacity = 0;
    std::uint64_t last_use = 0;
    std::atomic<std::uint32_t> users{0};  // tensors that lie in it
};

class Arena {
  public:
    static constexpr std::size_t alignment = 64;

    static Arena* create() { return new Arena; }

    // An idle block of at least `bytes`, now in use by `users` tensors.
    Block* take(std::size_t bytes, std::uint32_t users) {
        const std::lock_guard guard(mutex_);
        ++clock_;
        Block* best = nullptr;
        for (Block* block : blocks_) {
            if (block->users.load(std::memory_order_acquire) != 0) continue;
            if (block->capacity < bytes || block->capacity / 2 > std::max(bytes, smallest)) continue;
            if (!best || block->last_use > best->last_use) best = block;  // the one most likely still in a cache
        }
        if (!best) {
            best = allocate(bytes);
            trim(bytes);
        }
        best->last_use = clock_;
        references_.fetch_add(1, std::memory_order_relaxed);
        best->users.store(users, std::memory_order_release);
        return best;
    }

    // Called once by every tensor of a block when it goes.
    static void give_back(Block* block) noexcept {
        Arena* const arena = block->arena;
        if (block->users.fetch_sub(1, std::memory_order_acq_rel) == 1) arena->release();
    }

    // The owner needs it no more.
    void release() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    std::size_t bytes() {
        const std::lock_guard guard(mutex_);
        std::size_t sum = 0;
        for (const Block* block : blocks_) sum += block->capacity;
        return sum;
    }

  private:
    static constexpr std::size_t smallest = 4096;
    // Idle memory is kept up to this, or four times the block asked for where that is more.
    static constexpr std::size_t idle_cap = std::size_t{64} << 20;

    Arena() = default;
    ~Arena() {
        for (Block* block : blocks_) destroy(block);
    }

    Block* allocate(std::size_t bytes) {
        const std::size_t capacity = std::max((bytes + alignment - 1) / alignment * alignment, smallest);
        blocks_.reserve(blocks_.size() + 1);
        auto block = std::make_unique<Block>();
        block->data = static_cast<std::byte*>(::operator new(capacity, std::align_val_t{alignment_of(capacity)}));
        advise_huge_pages(block->data, capacity);
        block->arena = this;
        block->capacity = capacity;
        blocks_.push_back(block.get());
        return block.release();
    }

    // A large batch on 4 kB pages spends a fifth of its time on page walks.
    static constexpr std::size_t huge_page = std::size_t{2} << 20;
    static std::size_t alignment_of(std::size_t capacity) noexcept {
        return capacity >= huge_page / 2 ? huge_page : alignment;
    }
    static void advise_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t capacity) noexcept {
#if defined(__linux__)
        if (capacity >= huge_page / 2) madvise(data, capacity, MADV_HUGEPAGE);
#endif
    }

    static void destroy(Block* block) noexcept {
        ::operator delete(block->data, std::align_val_t{alignment_of(block->capacity)});
        delete block;
    }

    void trim(std::size_t request) {
        const std::size_t cap = std::max(idle_cap, 4 * request);
        for (;;) {
            std::size_t idle = 0;
            std::size_t oldest = blocks_.size();
            for (std::size_t i = 0; i + 1 < blocks_.size(); ++i) {  // the last one was just made
                if (blocks_[i]->users.load(std::memory_order_acquire) != 0) continue;
                idle += blocks_[i]->capacity;
                if (oldest == blocks_.size() || blocks_[i]->last_use < blocks_[oldest]->last_use) oldest = i;
            }
            if (idle <= cap) return;
            destroy(blocks_[oldest]);
            blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(oldest));
        }
    }

    ForkMutex mutex_;
    std::vector<Block*> blocks_;
    std::uint64_t clock_ = 0;
    std::atomic<std::size_t> references_{1};  // the owner, and every block in use
};

}  // namespace relive
