// Where the parts of a step lie. The core knows records (pointer, stride, offsets) and nothing of
// spaces or arrays: src/relive/layout.py derives a Layout from a Gymnasium space and a structured dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "breaks.hpp"

namespace relive {

// One array of a step (an observation has one or more, so has an action). A small leaf lies in the record,
// at `offset`; a large one in its own lane-major array `base[lane][row]`.
struct Leaf {
    std::size_t bytes = 0;
    bool packed = true;
    std::size_t offset = 0;     // in the record
    std::byte* base = nullptr;  // of a large leaf's own array
    Alike alike = nullptr;      // compares its numbers
};

struct Layout {
    std::size_t rows = 0;
    std::size_t lanes = 0;
    std::size_t record_bytes = 0;
    std::byte* records = nullptr;  // records[lane][row]
    std::vector<Leaf> observation;
    std::vector<Leaf> action;
    std::vector<Leaf> extra;  // fields that the user declared
    Leaf reward;              // float32, one or more, in the record
    std::size_t done = 0;     // offsets in the record: float32
    std::size_t timeout = 0;  // float32
    std::size_t link = 0;     // int32: where the successor lies, see `next_row`
    std::size_t flags = 0;    // uint8: see below
    std::size_t reach = 0;    // from a record to the end of the packed observation in the next one

    std::byte* record(std::size_t lane, std::size_t row) const noexcept {
        return records + (lane * rows + row) * record_bytes;
    }
    // How many numbers a reward has.
    std::size_t reward_width() const noexcept { return reward.bytes / sizeof(float); }

    std::byte* at(const Leaf& leaf, std::size_t lane, std::size_t row) const noexcept {
        return leaf.packed ? record(lane, row) + leaf.offset : leaf.base + (lane * rows + row) * leaf.bytes;
    }
};

// A link of 0 says that the successor is the observation of the next row, s + 1 that it is slot s of the finals.
// (Zero, so that memory fresh from the system needs no initialising and stays untouched.)
inline constexpr std::int32_t next_row = 0;
inline constexpr std::uint8_t flag_interrupted = 1;  // the stream was cut after this step, from outside

}  // namespace relive
