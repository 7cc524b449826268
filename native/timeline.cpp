#include "timeline.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "bytes.hpp"

namespace relive {
namespace {

std::vector<std::size_t> leaf_bytes(const std::vector<Leaf>& leaves) {
    std::vector<std::size_t> bytes;
    for (const Leaf& leaf : leaves) bytes.push_back(leaf.bytes);
    return bytes;
}

// Whether an end is said of a step that comes in.
bool ends(const Steps& steps, std::size_t step, std::size_t lane) noexcept {
    return load<float>(steps.done.at(step, lane)) != 0.0F || load<float>(steps.timeout.at(step, lane)) != 0.0F;
}

// The link of a lane's newest step: its head slot.
std::int32_t head_link(std::size_t lane) noexcept { return static_cast<std::int32_t>(lane) + 1; }

}  // namespace

Timeline::Timeline(Layout layout)
    : layout_(std::move(layout)),
      lanes_(layout_.lanes),
      finals_(layout_.lanes, leaf_bytes(layout_.observation)),
      before_(layout_.lanes + 1) {
    if (layout_.rows == 0 || layout_.lanes == 0)
        throw std::invalid_argument("a timeline has at least one row and lane");
    layout_.reach = layout_.record_bytes;
    for (const Leaf& leaf : layout_.observation) {
        if (leaf.packed) layout_.reach = std::max(layout_.reach, layout_.record_bytes + leaf.offset + leaf.bytes);
    }
}

std::int64_t Timeline::age(std::size_t lane, std::size_t row) const noexcept {
    const std::size_t ahead = newest(lanes_[lane]) + layout_.rows - row;
    return static_cast<std::int64_t>(ahead >= layout_.rows ? ahead - layout_.rows : ahead);
}

void Timeline::fill_slot(std::int32_t slot, const std::vector<Column>& from, std::size_t step,
                         std::size_t lane) noexcept {
    for (std::size_t i = 0; i < from.size(); ++i) {
        copy_bytes(finals_.at(i, slot), from[i].at(step, lane), layout_.observation[i].bytes);
    }
}

void Timeline::keep_successor(std::size_t lane, std::size_t row) {
    const std::int32_t slot = finals_.take();
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        copy_bytes(finals_.at(i, slot), successor(i, lane, row), layout_.observation[i].bytes);
    }
    set_link(lane, row, slot + 1);
}

void Timeline::move_to_head_slot(std::size_t lane) {
    const Lane& l = lanes_[lane];
    if (l.count == 0) return;
    const std::size_t row = newest(l);
    if (link(lane, row) == head_link(lane)) return;
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        copy_bytes(finals_.at(i, head_link(lane) - 1), successor(i, lane, row), layout_.observation[i].bytes);
    }
    release(lane, row);
    set_link(lane, row, head_link(lane));
}

bool Timeline::successor_is_next_row(std::size_t lane, std::size_t row) const noexcept {
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        const Leaf& leaf = layout_.observation[i];
        if (!equal_bytes(successor(i, lane, row), layout_.at(leaf, lane, next(row)), leaf.bytes)) return false;
    }
    return true;
}

// Appending -------------------------------------------------------------------------------------------------------

std::size_t Timeline::append(const Steps& steps, const std::uint8_t* mask, Breaks* breaks) {
    if (steps.count == 0) return 0;
    if (const std::size_t lacking = finals_.missing(count_breaks(steps, mask))) return lacking;
    if (!breaks) breaks = minded_;
    if (breaks) mind_breaks(steps, mask, *breaks);
    if (steps.count == 1) {
        append_one(steps, mask);
    } else {
        for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
            if (!mask || mask[lane]) append_many(steps, lane);
        }
    }
    fill_head_slots(steps, mask);
    if (mask || held_ != static_cast<std::int64_t>(layout_.rows * layout_.lanes)) recount();
    if (!observers_.empty()) tell_of_append(steps, mask);
    return 0;
}

// Notes every break, and returns how many finals they take: slots that overwritten steps free come on top.
std::size_t Timeline::count_breaks(const Steps& steps, const std::uint8_t* mask) {
    breaks_.assign(steps.count * layout_.lanes, 0);
    if (steps.count <= layout_.rows && layout_.rows > 1) find_first_breaks(steps, mask);
    std::size_t wanted = 0;
    if (steps.count == 1) {
        for (const std::uint8_t at : breaks_) wanted += at;
        return wanted;
    }
    const std::size_t first = steps.count > layout_.rows ? steps.count - layout_.rows : 0;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        if (mask && !mask[lane]) continue;
        std::uint8_t* const breaks = breaks_.data() + lane * steps.count;
        for (std::size_t i = 0; i < steps.observation.size(); ++i) {
            const std::size_t bytes = layout_.observation[i].bytes;
            for (std::size_t step = first + 1; step < steps.count; ++step) {
                breaks[step] |=
                    !equal_bytes(steps.successor[i].at(step - 1, lane), steps.observation[i].at(step, lane), bytes);
            }
        }
        for (std::size_t step = first; step < steps.count; ++step) wanted += breaks[step];
    }
    return wanted;
}

// Whether the first step of the call is the successor of each lane's newest step, bit for bit.
void Timeline::find_first_breaks(const Steps& steps, const std::uint8_t* mask) {
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        const std::size_t bytes = layout_.observation[i].bytes;
        const Column& column = steps.observation[i];
        const bool compact = column.lane_stride == static_cast<std::ptrdiff_t>(bytes);
        if (compact && !mask && equal_bytes(finals_.at(i, 0), column.data, layout_.lanes * bytes)) continue;
        for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
            if ((mask && !mask[lane]) || lanes_[lane].count == 0) continue;
            const std::byte* const expected = finals_.at(i, static_cast<std::int32_t>(lane));
            breaks_[lane * steps.count] |= !equal_bytes(expected, column.at(0, lane), bytes);
        }
    }
}

void Timeline::mind_breaks(const Steps& steps, const std::uint8_t* mask, Breaks& breaks) {
    // Between steps that are kept, count_breaks has compared bytes; what was not compared is looked at to detect alone.
    const std::size_t kept = std::min(steps.count, layout_.rows);
    const std::size_t compared_from = steps.count <= layout_.rows && layout_.rows > 1 ? 0 : steps.count - kept + 1;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        if (mask && !mask[lane]) continue;
        std::uint8_t* const places = breaks_.data() + lane * steps.count;
        for (std::size_t step = breaks.detect ? 0 : compared_from; step < steps.count; ++step) {
            if (step >= compared_from) {
                const void* const next = std::memchr(places + step, apart, steps.count - step);
                if (!next) break;
                step = static_cast<std::size_t>(static_cast<const std::uint8_t*>(next) - places);
            }
            if (!is_break(steps, step, lane, breaks.tolerance)) continue;
            ++breaks.found;
            if (breaks.detect) places[step] |= ended;
        }
        if (places[0] & ended) interrupt(lane);
    }
}

bool Timeline::is_break(const Steps& steps, std::size_t step, std::size_t lane, double tolerance) const noexcept {
    const Lane& l = lanes_[lane];
    if (step == 0 ? l.count == 0 || is_end(lane, newest(l)) : ends(steps, step - 1, lane)) return false;
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        const std::byte* const seen_last =
            step == 0 ? finals_.at(i, head_link(lane) - 1) : steps.successor[i].at(step - 1, lane);
        const Leaf& leaf = layout_.observation[i];
        if (!leaf.alike(seen_last, steps.observation[i].at(step, lane), leaf.bytes, tolerance)) return true;
    }
    return false;
}

// One step of every lane. What is the same for all lanes is looked up once: leaves outside, lanes inside.
void Timeline::append_one(const Steps& steps, const std::uint8_t* mask) {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    places_.clear();
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        if (mask && !mask[lane]) continue;
        Lane& l = lanes_[lane];
        if (l.count > 0 && rows > 1) {
            if (breaks_[lane] & apart) {
                keep_successor(lane, newest(l));
            } else {
                set_link(lane, newest(l), next_row);
            }
        }
        note_overwritten(lane);
        if (l.count == rows || links_beyond_held_) release(lane, l.row);
        places_.push_back({lane, l.row, layout_.record(lane, l.row)});
        // Many lanes are more streams than the hardware follows: ask now for what the next step of this one writes,
        // the rest further down, so that not all of it waits at once.
        prefetch(layout_.record(lane, next(l.row)), 1);
    }
    write_leaves(layout_.observation, steps.observation);
    write_leaves(layout_.action, steps.action);
    write_leaves(layout_.extra, steps.extra);
    for (const Place& place : places_) {
        copy_bytes(place.record + layout_.reward.offset, steps.reward.at(0, place.lane), layout_.reward.bytes);
        store(place.record + layout_.done, load<float>(steps.done.at(0, place.lane)));
        store(place.record + layout_.timeout, load<float>(steps.timeout.at(0, place.lane)));
        store(place.record + layout_.link, head_link(place.lane));
        store(place.record + layout_.flags, std::uint8_t{0});
        Lane& l = lanes_[place.lane];
        ++l.head;
        l.row = next(place.row);
        l.count = std::min(l.count + 1, rows);
        if (layout_.record_bytes > 64) prefetch(layout_.record(place.lane, l.row) + 64, layout_.record_bytes - 64);
    }
}

void Timeline::write_leaves(const std::vector<Leaf>& leaves, const std::vector<Column>& from) const noexcept {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
        const Leaf leaf = leaves[i];
        const Column column = from[i];
        if (leaf.packed) {
            for (const Place& place : places_)
                copy_bytes(place.record + leaf.offset, column.at(0, place.lane), leaf.bytes);
        } else {
            for (const Place& place : places_) {
                copy_bytes(layout_.at(leaf, place.lane, place.row), column.at(0, place.lane), leaf.bytes);
            }
        }
    }
}

void Timeline::append_many(const Steps& steps, std::size_t lane) {
    const std::size_t first = steps.count > layout_.rows ? steps.count - layout_.rows : 0;
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    const std::uint8_t* const breaks = breaks_.data() + lane * steps.count;
    Lane& l = lanes_[lane];
    const std::int64_t begun = first > 0 ? begin_before(steps, first, lane) : 0;
    if (first > 0) {  // every step held now is overwritten, and so are the first ones of this call
        for (std::int64_t n = l.head - l.count; n < l.head; ++n) {
            release(lane, row_of(n));
            set_link(lane, row_of(n), next_row);
        }
        l.count = 0;
        l.head += static_cast<std::int64_t>(first);
        l.row = row_of(l.head);
    } else if (l.count > 0 && rows > 1) {
        if (breaks[0] & apart) {
            keep_successor(lane, newest(l));
        } else {
            set_link(lane, newest(l), next_row);
        }
    }
    for (std::size_t step = first; step < steps.count; ++step) {
        const std::size_t row = l.row;
        if (step > first && (breaks[step] & apart)) {
            const std::int32_t slot = finals_.take();
            fill_slot(slot, steps.successor, step - 1, lane);
            set_link(lane, previous(row), slot + 1);
        }
        note_overwritten(lane);
        if (l.count == rows || links_beyond_held_) release(lane, row);
        write_step(steps, step, lane, row);
        if (step + 1 < steps.count && (breaks[step + 1] & ended)) mark_interrupted(lane, row);
        ++l.head;
        l.row = next(row);
        l.count = std::min(l.count + 1, rows);
    }
    set_link(lane, newest(l), head_link(lane));
    if (first > 0) l.begun = begun;
}

std::int64_t Timeline::begin_before(const Steps& steps, std::size_t first, std::size_t lane) const noexcept {
    const Lane& l = lanes_[lane];
    for (std::size_t step = first; step-- > 0;) {
        if (ends(steps, step, lane) || (breaks_[lane * steps.count + step + 1] & ended))
            return l.head + static_cast<std::int64_t>(step) + 1;
    }
    for (std::int64_t n = l.head; n-- > l.head - l.count;) {
        if (is_end(lane, row_of(n))) return n + 1;
    }
    return l.count > 0 ? l.begun : l.head;
}

void Timeline::fill_head_slots(const Steps& steps, const std::uint8_t* mask) {
    const std::size_t last = steps.count - 1;
    for (std::size_t i = 0; i < layout_.observation.size(); ++i) {
        const std::size_t bytes = layout_.observation[i].bytes;
        const Column& column = steps.successor[i];
        if (!mask && column.lane_stride == static_cast<std::ptrdiff_t>(bytes)) {
            copy_bytes(finals_.at(i, 0), column.at(last, 0), layout_.lanes * bytes);
            continue;
        }
        for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
            if (mask && !mask[lane]) continue;
            copy_bytes(finals_.at(i, static_cast<std::int32_t>(lane)), column.at(last, lane), bytes);
        }
    }
}

void Timeline::write_step(const Steps& steps, std::size_t step, std::size_t lane, std::size_t row) {
    std::byte* const record = layout_.record(lane, row);
    const auto write = [&](const std::vector<Leaf>& leaves, const std::vector<Column>& from) {
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            std::byte* const to = leaves[i].packed ? record + leaves[i].offset : layout_.at(leaves[i], lane, row);
            copy_bytes(to, from[i].at(step, lane), leaves[i].bytes);
        }
    };
    write(layout_.observation, steps.observation);
    write(layout_.action, steps.action);
    write(layout_.extra, steps.extra);
    copy_bytes(record + layout_.reward.offset, steps.reward.at(step, lane), layout_.reward.bytes);
    store(record + layout_.done, load<float>(steps.done.at(step, lane)));
    store(record + layout_.timeout, load<float>(steps.timeout.at(step, lane)));
    store(record + layout_.link, next_row);
    store(record + layout_.flags, std::uint8_t{0});
}

void Timeline::interrupt(std::size_t lane) {
    const Lane& l = lanes_.at(lane);
    if (l.count == 0) return;
    mark_interrupted(lane, newest(l));
    for (Observer* observer : observers_) {
        observer->cut(lane);
        observer->settled();
    }
}

void Timeline::renew() {
    for (Observer* observer : observers_) {
        observer->renewed();
        observer->settled();
    }
}

void Timeline::tell_of_append(const Steps& steps, const std::uint8_t* mask) {
    const auto kept = static_cast<std::int64_t>(std::min(steps.count, layout_.rows));
    for (Observer* observer : observers_) {
        for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
            if (mask && !mask[lane]) continue;
            const std::int64_t head = lanes_[lane].head;
            if (steps.count > layout_.rows) observer->emptied(lane, head - kept);
            for (std::int64_t number = head - kept; number < head; ++number) observer->appended(lane, number);
        }
        observer->settled();
    }
}

// Setting state from outside --------------------------------------------------------------------------------------

void Timeline::clear() {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    for (Lane& lane : lanes_) {
        const std::int64_t head = (lane.head + rows - 1) / rows * rows;
        lane = {head, 0, 0, head};
    }
    finals_.clear();
    links_beyond_held_ = false;
    recount();
    for (Observer* observer : observers_) {
        for (std::size_t lane = 0; lane < layout_.lanes; ++lane) observer->emptied(lane, lanes_[lane].head);
        observer->settled();
    }
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

std::size_t Timeline::declare(std::size_t position, std::size_t count) {
    if (position >= layout_.rows || count > layout_.rows) throw std::out_of_range("position or count beyond the rows");
    if (const std::size_t lacking = finals_.missing(layout_.lanes)) return lacking;
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    trust_all_links();
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        Lane& l = lanes_[lane];
        if (l.count > 0 && (newest(l) != previous(position) || count == 0)) keep_successor(lane, newest(l));
        // The next number at this position: numbers never go back, so no old handle names another step.
        l.head += ((static_cast<std::int64_t>(position) - l.head) % rows + rows) % rows;
        l.count = static_cast<std::int64_t>(count);
        if (l.head < l.count) l.head += rows;
        l.row = position;
        l.begun = l.head - l.count;
        move_to_head_slot(lane);
    }
    recount();
    renew();
    return 0;
}

void Timeline::restore(const std::vector<Lane>& lanes, std::size_t high_water) {
    const auto rows = static_cast<std::int64_t>(layout_.rows);
    if (lanes.size() != layout_.lanes) throw std::invalid_argument("as many lanes as the layout has");
    std::vector<bool> live(high_water, false);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const Lane& l = lanes[lane];
        if (l.count < 0 || l.count > rows || l.head < l.count || l.begun < 0 || l.begun > l.head - l.count)
            throw std::invalid_argument("lane counts out of bounds");
        for (std::int64_t n = l.head - l.count; n < l.head; ++n) {
            const std::int32_t where = link(lane, row_of(n));
            if (n + 1 == l.head) {
                if (where != head_link(lane))
                    throw std::invalid_argument("the newest step of a lane without its head slot");
            } else if (where != next_row) {
                const auto slot = static_cast<std::size_t>(where) - 1;
                if (where <= static_cast<std::int32_t>(layout_.lanes) || slot >= high_water || live[slot]) {
                    throw std::invalid_argument("a link to no final of its own");
                }
                live[slot] = true;
            }
        }
    }
    std::vector<std::int32_t> freed;
    for (std::size_t slot = layout_.lanes; slot < high_water; ++slot) {
        if (!live[slot]) freed.push_back(static_cast<std::int32_t>(slot));
    }
    finals_.restore(high_water, freed);
    lanes_ = lanes;
    for (Lane& lane : lanes_) lane.row = row_of(lane.head);
    links_beyond_held_ = false;
    trust_all_links();  // what stands in the links of other rows names finals that are not there
    links_beyond_held_ = false;
    recount();
    renew();
}

std::size_t Timeline::assign_successors(const std::vector<Column>& successors) {
    const std::size_t rows = layout_.rows;
    breaks_.assign(rows * layout_.lanes, 0);
    std::size_t wanted = 0;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        for (std::size_t row = 0; row < rows; ++row) {
            // The row after the newest one is not its successor, and a row that is not held may become the newest.
            bool is_next = age(lane, row) < lanes_[lane].count && age(lane, row) > 0;
            for (std::size_t i = 0; is_next && i < successors.size(); ++i) {
                const Leaf& leaf = layout_.observation[i];
                is_next = equal_bytes(successors[i].at(row, lane), layout_.at(leaf, lane, next(row)), leaf.bytes);
            }
            breaks_[lane * rows + row] = !is_next;
            wanted += !is_next;
        }
    }
    if (wanted + layout_.lanes > finals_.capacity()) return wanted + layout_.lanes - finals_.capacity();
    finals_.clear();
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        for (std::size_t row = 0; row < rows; ++row) {
            set_link(lane, row, next_row);
            if (!breaks_[lane * rows + row]) continue;
            const bool is_newest = lanes_[lane].count > 0 && row == newest(lanes_[lane]);
            const std::int32_t slot = is_newest ? head_link(lane) - 1 : finals_.take();
            fill_slot(slot, successors, row, lane);
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
    if (const std::size_t lacking = finals_.missing(wanted)) return lacking;
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane) {
        const Lane& l = lanes_[lane];
        for (std::int64_t n = l.head - l.count; n + 1 < l.head; ++n) {
            if (loses_successor(lane, row_of(n))) keep_successor(lane, row_of(n));
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
    renew();
}

// Counting --------------------------------------------------------------------------------------------------------

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
        lockstep_ = lockstep_ && lanes_[lane].row == lanes_[0].row && lanes_[lane].count == lanes_[0].count;
    }
    before_[lanes_.size()] = held_;
}

}  // namespace relive
