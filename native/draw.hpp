// Random draws from a NumPy BitGenerator through its C interface (numpy/random/bitgen.h: the struct below).
// The caller holds the generator's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "timeline.hpp"

namespace relive {

struct BitGenerator {
    void* state;
    std::uint64_t (*next_uint64)(void* state);
    std::uint32_t (*next_uint32)(void* state);
    double (*next_double)(void* state);
    std::uint64_t (*next_raw)(void* state);
};

// `size` integers in [0, bound), with the draws that numpy.random.randint makes: masked rejection, 32 bits for
// bounds below 2**32, and nothing consumed for a bound of 1.
inline void draw_below(BitGenerator& bits, std::uint64_t bound, std::size_t size, std::int64_t* out) {
    const std::uint64_t largest = bound - 1;
    if (largest == 0) {
        std::fill(out, out + size, 0);
    } else if (largest <= UINT32_MAX) {
        const auto top = static_cast<std::uint32_t>(largest);
        const std::uint32_t mask = UINT32_MAX >> std::countl_zero(top);
        for (std::size_t i = 0; i < size; ++i) {
            std::uint32_t value = bits.next_uint32(bits.state) & mask;
            while (value > top) value = bits.next_uint32(bits.state) & mask;
            out[i] = value;
        }
    } else {
        const std::uint64_t mask = UINT64_MAX >> std::countl_zero(largest);
        for (std::size_t i = 0; i < size; ++i) {
            std::uint64_t value = bits.next_uint64(bits.state) & mask;
            while (value > largest) value = bits.next_uint64(bits.state) & mask;
            out[i] = static_cast<std::int64_t>(value);
        }
    }
}

// Steps of `timeline` (not empty) drawn uniformly with replacement. In lockstep: all rows, then all lanes, which is
// the order of the seed module; else one draw over all held steps.
inline void draw_uniform(const Timeline& timeline, BitGenerator& bits, std::size_t size,
                         std::vector<std::int64_t>& scratch, std::vector<Pick>& picks) {
    scratch.resize(2 * size);
    picks.resize(size);
    const std::vector<Lane>& lanes = timeline.lanes();
    if (timeline.in_lockstep()) {
        draw_below(bits, static_cast<std::uint64_t>(lanes[0].count), size, scratch.data());
        draw_below(bits, lanes.size(), size, scratch.data() + size);
        const std::size_t rows = timeline.layout().rows;
        const bool full = lanes[0].count == static_cast<std::int64_t>(rows);
        const std::size_t oldest = full ? 0 : timeline.row_of(lanes[0].head - lanes[0].count);
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t row = oldest + static_cast<std::size_t>(scratch[i]);
            picks[i] = {static_cast<std::size_t>(scratch[size + i]), row < rows ? row : row - rows};
        }
    } else {
        draw_below(bits, static_cast<std::uint64_t>(timeline.held()), size, scratch.data());
        const std::vector<std::int64_t>& before = timeline.counts_before();
        for (std::size_t i = 0; i < size; ++i) {
            const auto lane =
                static_cast<std::size_t>(std::upper_bound(before.begin(), before.end(), scratch[i]) - before.begin()) -
                1;
            const std::int64_t oldest = lanes[lane].head - lanes[lane].count;
            picks[i] = {lane, timeline.row_of(oldest + scratch[i] - before[lane])};
        }
    }
}

}  // namespace relive
