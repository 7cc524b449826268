// The one-step view: what is made of drawn steps when the learner asks for transitions.
#pragma once

#include <cstddef>
#include <vector>

#include "bytes.hpp"
#include "timeline.hpp"

namespace relive {

// Where a batch goes: item i of a field lies i * (bytes of one item) after its start.
struct TransitionBatch {
    std::vector<std::byte*> observation;
    std::vector<std::byte*> action;
    std::vector<std::byte*> successor;
    std::byte* done = nullptr;    // float32: 1 where the episode ended and was not merely cut by a time limit
    std::byte* reward = nullptr;  // float32, as many as the layout says
};

// How far ahead of the copying records, and then the finals that they name, are asked for. Random steps of a large
// buffer are cache misses: their waits overlap instead of adding up.
inline constexpr std::size_t ahead_of_records = 16;
inline constexpr std::size_t ahead_of_finals = 8;
inline constexpr std::size_t prefetched_head = 256;  // of a large leaf; the hardware goes on from there

namespace detail {

#if defined(__GNUC__) || defined(__clang__)
[[gnu::always_inline]]
#endif
inline void prefetch_step(const Timeline& timeline, const Pick& pick) noexcept {
    const Layout& layout = timeline.layout();
    // The successor's observation lies in the next record: one range, unless the ring wraps between the two.
    prefetch(layout.record(pick.lane, pick.row), layout.reach);
    for (const Leaf& leaf : layout.observation) {
        if (!leaf.packed) prefetch(layout.at(leaf, pick.lane, pick.row), prefetched_head);
    }
}

#if defined(__GNUC__) || defined(__clang__)
[[gnu::always_inline]]
#endif
inline void prefetch_final(const Timeline& timeline, const Pick& pick) noexcept {
    if (timeline.link(pick.lane, pick.row) == next_row) return;
    const std::vector<Leaf>& leaves = timeline.layout().observation;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
        prefetch(timeline.successor(k, pick.lane, pick.row), leaves[k].packed ? leaves[k].bytes : prefetched_head);
    }
}

// Batches of a leaf from this size on are written past the caches.
inline constexpr std::size_t stream_from = std::size_t{4} << 20;

inline void copy_item(const Leaf& leaf, std::byte* field, std::size_t i, std::size_t size,
                      const std::byte* from) noexcept {
    if (size * leaf.bytes >= stream_from) {
        stream_bytes(field + i * leaf.bytes, from, leaf.bytes);
    } else {
        copy_bytes(field + i * leaf.bytes, from, leaf.bytes);
    }
}

}  // namespace detail

inline void gather_transitions(const Timeline& timeline, const std::vector<Pick>& picks, const TransitionBatch& out) {
    const Layout& layout = timeline.layout();
    const std::size_t size = picks.size();
    for (std::size_t i = 0; i < std::min(size, ahead_of_records); ++i) detail::prefetch_step(timeline, picks[i]);
    for (std::size_t i = 0; i < size; ++i) {
        if (i + ahead_of_records < size) detail::prefetch_step(timeline, picks[i + ahead_of_records]);
        if (i + ahead_of_finals < size) detail::prefetch_final(timeline, picks[i + ahead_of_finals]);
        const Pick& pick = picks[i];
        for (std::size_t k = 0; k < layout.observation.size(); ++k) {
            const Leaf& leaf = layout.observation[k];
            detail::copy_item(leaf, out.observation[k], i, size, layout.at(leaf, pick.lane, pick.row));
            detail::copy_item(leaf, out.successor[k], i, size, timeline.successor(k, pick.lane, pick.row));
        }
        for (std::size_t k = 0; k < layout.action.size(); ++k) {
            const Leaf& leaf = layout.action[k];
            detail::copy_item(leaf, out.action[k], i, size, layout.at(leaf, pick.lane, pick.row));
        }
        const std::byte* const record = layout.record(pick.lane, pick.row);
        const auto done = load<float>(record + layout.done);
        const auto timeout = load<float>(record + layout.timeout);
        store(out.done + i * sizeof(float), done * (1.0F - timeout));
        copy_bytes(out.reward + i * layout.reward.bytes, record + layout.reward.offset, layout.reward.bytes);
    }
    end_of_stream();
}

}  // namespace relive
