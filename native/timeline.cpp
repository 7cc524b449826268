#include "timeline.hpp"

#include <algorithm>
#include <stdexcept>

#include "bytes.hpp"

namespace relive {

Timeline::Timeline(Layout layout) : layout_(std::move(layout)), lanes_(layout_.lanes), before_(layout_.lanes + 1) {
    if (layout_.rows == 0 || layout_.lanes == 0) throw std::invalid_argument("a timeline has at least one row and lane");
}

std::int32_t Timeline::link(std::size_t lane, std::size_t row) const noexcept {
    return load<std::int32_t>(layout_.record(lane, row) + layout_.link);
}

void Timeline::set_link(std::size_t lane, std::size_t row, std::int32_t link) noexcept {
    store(layout_.record(lane, row) + layout_.link, link);
}

void Timeline::release(std::size_t lane, std::size_t row) {
    const std::int32_t old = link(lane, row);
    if (old != next_row) finals_.give_back(old - 1);
}

const std::byte* Timeline::successor(const Leaf& leaf, std::size_t lane, std::size_t row) const noexcept {
    const std::int32_t where = link(lane, row);
    return where == next_row ? layout_.at(leaf, lane, next(row)) : finals_.at(leaf, layout_.slot_bytes, where - 1);
}

void Timeline::write_final(std::int32_t slot, const std::vector<Column>& from, std::size_t step, std::size_t lane) {
    for (std::size_t i = 0; i < from.size(); ++i) {
        const Leaf& leaf = layout_.observation[i];
        copy_bytes(finals_.at(leaf, layout_.slot_bytes, slot), from[i].at(step, lane), leaf.bytes);
    }
}

// Gives a row whose successor is the next row a final of its own.
void Timeline::save_next_row(std::size_t lane, std::size_t row) {
    const std::int32_t slot = finals_.take();
    for (const Leaf& leaf : layout_.observation) {
        copy_bytes(finals_.at(leaf, layout_.slot_bytes, slot), layout_.at(leaf, lane, next(row)), leaf.bytes);
    }
    set_link(lane, row, slot + 1);
}

// The observation that arrives is the successor kept for the newest step, bit for bit.
bool Timeline::follows(const std::vector<Column>& observation, std::size_t step, std::size_t lane) const noexcept {
    const std::size_t newest = row_of(lanes_[lane].head - 1);
    for (std::size_t i = 0; i < observation.size(); ++i) {
        const Leaf& leaf = layout_.observation[i];
        if (!equal_bytes(successor(leaf, lane, newest), observation[i].at(step, lane), leaf.bytes)) return false;
    }
    return true;
}

bool Timeline::successor_is_next_row(std::size_t lane, std::size_t row) const noexcept {
    for (const Leaf& leaf : layout_.observation) {
        if (!equal_bytes(successor(leaf, lane, row), layout_.at(leaf, lane, next(row)), leaf.bytes)) return false;
    }
    return true;
}

std::size_t Timeline::missing(std::size_t wanted) const noexcept {
    return wanted > finals_.available() ? wanted - finals_.available() : 0;
}

// An upper bound of the finals that `append` takes (slots freed by overwritten steps come on top), with the
// breaks between steps noted for it.
std::size_t Timeline::count_finals(const Steps& steps, const std::uint8_t* mask) {
    const std::size_t first = steps.count > layout_.rows ? steps.count - layout_.rows : 0;
    breaks_.assign(steps.count * layout_.lanes, 0);
    std::size_t wanted = 0;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        if (mask && !mask[lane]) continue;
        std::uint8_t* const breaks = breaks_.data() + lane * steps.count;
        const bool has_newest = first == 0 && lanes_[lane].count > 0 && layout_.rows > 1;
        breaks[first] = !(has_newest && follows(steps.observation, first, lane));
        if (breaks[first]) ++wanted;  // else the newest step's final is free for the new newest step
        for (std::size_t i = 0; i < steps.observation.size(); ++i) {
            const std::size_t bytes = layout_.observation[i].bytes;
            for (std::size_t step = first + 1; step < steps.count; ++step) {
                breaks[step] |= !equal_bytes(steps.successor[i].at(step - 1, lane), steps.observation[i].at(step, lane), bytes);
            }
        }
        for (std::size_t step = first + 1; step < steps.count; ++step) wanted += breaks[step];
    }
    return wanted;
}

std::size_t Timeline::append(const Steps& steps, const std::uint8_t* mask) {
    if (steps.count == 0) return 0;
    if (const std::size_t lacking = missing(count_finals(steps, mask))) return lacking;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        if (!mask || mask[lane]) append_lane(steps, lane);
    }
    recount();
    return 0;
}

void Timeline::append_lane(const Steps& steps, std::size_t lane) {
    const std::size_t first = steps.count > layout_.rows ? steps.count - layout_.rows : 0;
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    const std::uint8_t* const breaks = breaks_.data() + lane * steps.count;
    Lane& l = lanes_[lane];
    l.head += static_cast<std::int64_t>(first);  // steps that later ones of this call overwrite at once
    std::int32_t spare = next_row;
    for (std::size_t step = first; step < steps.count; ++step) {
        const std::size_t row = row_of(l.head);
        if (step > first) {
            if (breaks[step]) {
                const std::int32_t slot = finals_.take();
                write_final(slot, steps.successor, step - 1, lane);
                set_link(lane, previous(row), slot + 1);
            }
        } else if (!breaks[step]) {
            spare = link(lane, previous(row));
            set_link(lane, previous(row), next_row);
        }
        if (l.count == rows || links_beyond_held_) release(lane, row);
        write_step(steps, step, lane, row);
        ++l.head;
        l.count = std::min(l.count + 1, rows);
    }
    const std::int32_t slot = spare != next_row ? spare - 1 : finals_.take();
    write_final(slot, steps.successor, steps.count - 1, lane);
    set_link(lane, row_of(l.head - 1), slot + 1);
}

void Timeline::write_step(const Steps& steps, std::size_t step, std::size_t lane, std::size_t row) {
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        const Leaf& leaf = layout_.observation[i];
        copy_bytes(layout_.at(leaf, lane, row), steps.observation[i].at(step, lane), leaf.bytes);
    }
    for (std::size_t i = 0; i < layout_.action.size(); ++i) {
        const Leaf& leaf = layout_.action[i];
        copy_bytes(layout_.at(leaf, lane, row), steps.action[i].at(step, lane), leaf.bytes);
    }
    std::byte* const record = layout_.record(lane, row);
    copy_bytes(record + layout_.reward, steps.reward.at(step, lane), sizeof(float));
    copy_bytes(record + layout_.done, steps.done.at(step, lane), sizeof(float));
    if (steps.timeout.data) {
        copy_bytes(record + layout_.timeout, steps.timeout.at(step, lane), sizeof(float));
    } else {
        store(record + layout_.timeout, 0.0F);
    }
    store(record + layout_.link, next_row);
    store(record + layout_.flags, std::uint8_t{0});
}

void Timeline::interrupt(std::size_t lane) {
    const Lane& l = lanes_.at(lane);
    if (l.count == 0) return;
    std::byte* const flags = layout_.record(lane, row_of(l.head - 1)) + layout_.flags;
    store(flags, static_cast<std::uint8_t>(load<std::uint8_t>(flags) | flag_interrupted));
}

void Timeline::clear() {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    for (Lane& lane : lanes_) {
        lane.head = (lane.head + rows - 1) / rows * rows;
        lane.count = 0;
    }
    finals_.clear();
    links_beyond_held_ = false;
    recount();
}

// Makes the links of rows that are not held as good as those that are, so that rows can become held, or cease to
// be, without losing or inventing a successor.
void Timeline::trust_all_links() {
    if (links_beyond_held_) return;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        for (std::size_t row = 0; row < layout_.rows; ++row) {
            // Only what is not zero is written: untouched memory stays untouched.
            if (age(lane, row) >= lanes_[lane].count && link(lane, row) != next_row) set_link(lane, row, next_row);
        }
    }
    links_beyond_held_ = true;
}

std::int64_t Timeline::age(std::size_t lane, std::size_t row) const noexcept {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    const std::int64_t distance = (lanes_[lane].head - 1 - static_cast<std::int64_t>(row)) % rows;
    return distance < 0 ? distance + rows : distance;
}

std::size_t Timeline::declare(std::size_t position, std::size_t count) {
    if (position >= layout_.rows || count > layout_.rows) throw std::out_of_range("position or count beyond the rows");
    if (const std::size_t lacking = missing(layout_.lanes)) return lacking;
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    trust_all_links();
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        Lane& l = lanes_[lane];
        // The next number at this position: numbers never go back, so no old handle names another step.
        l.head += ((static_cast<std::int64_t>(position) - l.head) % rows + rows) % rows;
        l.count = static_cast<std::int64_t>(count);
        if (l.head < l.count) l.head += rows;
        if (l.count > 0 && link(lane, row_of(l.head - 1)) == next_row) save_next_row(lane, row_of(l.head - 1));
    }
    recount();
    return 0;
}

void Timeline::restore(const std::vector<Lane>& lanes, std::size_t high_water) {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    if (lanes.size() != layout_.lanes) throw std::invalid_argument("as many lanes as the layout has");
    std::vector<bool> live(high_water, false);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const Lane& l = lanes[lane];
        if (l.count < 0 || l.count > rows || l.head < l.count) throw std::invalid_argument("lane counts out of bounds");
        for (std::int64_t n = l.head - l.count; n < l.head; ++n) {
            const std::int32_t where = link(lane, row_of(n));
            if (where == next_row && n + 1 < l.head) continue;
            const auto slot = static_cast<std::size_t>(where) - 1;
            if (where < 1 || slot >= high_water || live[slot]) throw std::invalid_argument("a link to no final of its own");
            live[slot] = true;
        }
    }
    std::vector<std::int32_t> freed;
    for (std::size_t slot = 0; slot < high_water; ++slot) {
        if (!live[slot]) freed.push_back(static_cast<std::int32_t>(slot));
    }
    finals_.restore(high_water, freed);
    lanes_ = lanes;
    links_beyond_held_ = false;
    recount();
}

std::size_t Timeline::assign_successors(const std::vector<Column>& successors) {
    // The row after the newest one is not its successor, and a row that is not held may become the newest.
    breaks_.assign(layout_.rows * layout_.lanes, 0);
    std::size_t wanted = 0;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        for (std::size_t row = 0; row < layout_.rows; ++row) {
            bool is_next = age(lane, row) < lanes_[lane].count && age(lane, row) > 0;
            for (std::size_t i = 0; is_next && i < successors.size(); ++i) {
                const Leaf& leaf = layout_.observation[i];
                is_next = equal_bytes(successors[i].at(row, lane), layout_.at(leaf, lane, next(row)), leaf.bytes);
            }
            breaks_[lane * layout_.rows + row] = !is_next;
            wanted += !is_next;
        }
    }
    if (wanted > finals_.capacity()) return wanted - finals_.capacity();
    finals_.clear();
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        for (std::size_t row = 0; row < layout_.rows; ++row) {
            if (!breaks_[lane * layout_.rows + row]) {
                set_link(lane, row, next_row);
                continue;
            }
            const std::int32_t slot = finals_.take();
            write_final(slot, successors, row, lane);
            set_link(lane, row, slot + 1);
        }
    }
    links_beyond_held_ = true;
    return 0;
}

std::size_t Timeline::assign_observation(std::size_t index, const Column& values) {
    const Leaf& leaf = layout_.observation.at(index);
    const auto loses_successor = [&](std::size_t lane, std::size_t row) {
        return link(lane, row) == next_row &&
               !equal_bytes(layout_.at(leaf, lane, next(row)), values.at(next(row), lane), leaf.bytes);
    };
    std::size_t wanted = 0;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        const Lane& l = lanes_[lane];
        for (std::int64_t n = l.head - l.count; n + 1 < l.head; ++n) wanted += loses_successor(lane, row_of(n));
    }
    if (const std::size_t lacking = missing(wanted)) return lacking;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        const Lane& l = lanes_[lane];
        for (std::int64_t n = l.head - l.count; n + 1 < l.head; ++n) {
            if (loses_successor(lane, row_of(n))) save_next_row(lane, row_of(n));
        }
        for (std::size_t row = 0; row < layout_.rows; ++row) {
            copy_bytes(layout_.at(leaf, lane, row), values.at(row, lane), leaf.bytes);
        }
    }
    compact();
    return 0;
}

void Timeline::compact() {
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        const Lane& l = lanes_[lane];
        for (std::int64_t n = l.head - l.count; n + 1 < l.head; ++n) {
            const std::size_t row = row_of(n);
            if (link(lane, row) == next_row || !successor_is_next_row(lane, row)) continue;
            release(lane, row);
            set_link(lane, row, next_row);
        }
    }
}

std::size_t Timeline::used_rows() const noexcept {
    std::size_t used = 0;
    for (const Lane& l : lanes_) {
        if (l.count == 0) continue;
        const std::size_t end = row_of(l.head - l.count) + static_cast<std::size_t>(l.count);
        used = std::max(used, std::min(end, layout_.rows));
    }
    return used;
}

void Timeline::recount() {
    lockstep_ = true;
    held_ = 0;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        before_[lane] = held_;
        held_ += lanes_[lane].count;
        lockstep_ = lockstep_ && lanes_[lane].head == lanes_[0].head && lanes_[lane].count == lanes_[0].count;
    }
    before_[lanes_.size()] = held_;
}

}  // namespace relive
