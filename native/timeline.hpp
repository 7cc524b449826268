// The timeline: the lanes of a buffer, each a ring of steps with its own head. It owns what a step's number
// means, which steps are held, and where the successor of a step lies. Every method but the constructor asks
// that the caller holds `mutex`. Methods that may need finals return 0 when done; else they have changed nothing,
// and so many more slots must be brought (Finals::add_chunk) before the call is made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "breaks.hpp"
#include "bytes.hpp"
#include "finals.hpp"
#include "fork_mutex.hpp"
#include "layout.hpp"
#include "observer.hpp"

namespace relive {

// Values that come from outside: item (step, lane) lies at data + step * step_stride + lane * lane_stride.
struct Column {
    const std::byte* data = nullptr;
    std::ptrdiff_t step_stride = 0;
    std::ptrdiff_t lane_stride = 0;

    const std::byte* at(std::size_t step, std::size_t lane) const noexcept {
        return data + static_cast<std::ptrdiff_t>(step) * step_stride + static_cast<std::ptrdiff_t>(lane) * lane_stride;
    }
};

// One or more steps of every lane, in the stored dtypes.
struct Steps {
    std::size_t count = 1;
    std::vector<Column> observation;
    std::vector<Column> successor;
    std::vector<Column> action;
    std::vector<Column> extra;
    Column reward;   // float32, as many as the layout says
    Column done;     // float32
    Column timeout;  // float32
};

// A step by place.
struct Pick {
    std::size_t lane;
    std::size_t row;
};

struct Lane {
    std::int64_t head = 0;   // the number of the next step; number modulo rows is its row
    std::int64_t count = 0;  // how many steps are held: numbers [head - count, head)
    std::size_t row = 0;     // that of head, so that the hot path needs no division
    std::int64_t begun = 0;  // the number at which the episode of the oldest step began, overwritten since or not
};

class Timeline {
  public:
    explicit Timeline(Layout layout);

    ForkMutex mutex;

    const Layout& layout() const noexcept { return layout_; }
    const std::vector<Lane>& lanes() const noexcept { return lanes_; }
    Finals& finals() noexcept { return finals_; }
    const Finals& finals() const noexcept { return finals_; }

    // Appends `steps` to every lane (`mask` null) or to those with mask[lane] != 0, and minds their `breaks`.
    [[nodiscard]] std::size_t append(const Steps& steps, const std::uint8_t* mask, Breaks* breaks = nullptr);
    // What is minded where a call does not say: null for nothing. It must live as long.
    void mind(Breaks* breaks) noexcept { minded_ = breaks; }

    // Who is told of every change from now on; it must live as long as it is attached.
    void attach(Observer* observer) { observers_.push_back(observer); }
    void detach(Observer* observer) { std::erase(observers_, observer); }
    // Tells everybody to look at all anew: flags were written from outside.
    void renew();

    // Says that a lane's stream was cut from outside after its newest step.
    void interrupt(std::size_t lane);

    // Forgets every step. Numbers go on upwards, so no old handle becomes valid again.
    void clear();

    // Declares `count` steps held in every lane, the newest of them at row `position - 1`.
    [[nodiscard]] std::size_t declare(std::size_t position, std::size_t count);

    // Puts heads and counts back; records and finals below `high_water` are already in place, and checked here.
    void restore(const std::vector<Lane>& lanes, std::size_t high_water);

    // Sets the successors of all rows: column (row, lane).
    [[nodiscard]] std::size_t assign_successors(const std::vector<Column>& successors);

    // Overwrites one observation leaf of all rows and leaves every successor as it was.
    [[nodiscard]] std::size_t assign_observation(std::size_t leaf, const Column& values);

    // Frees the finals that the next row holds as well.
    void compact();

    // All lanes write at the same row next and hold as many steps.
    bool in_lockstep() const noexcept { return lockstep_; }
    std::int64_t held() const noexcept { return held_; }
    // Sums of the counts before each lane and after the last, for draws over lanes that differ.
    const std::vector<std::int64_t>& counts_before() const noexcept { return before_; }

    std::size_t row_of(std::int64_t number) const noexcept { return static_cast<std::size_t>(number) % layout_.rows; }
    // The row of a held step, without the division of row_of.
    std::size_t row_held(std::size_t lane, std::int64_t number) const noexcept {
        const Lane& l = lanes_[lane];
        const auto back = static_cast<std::size_t>(l.head - number);
        return l.row >= back ? l.row - back : l.row + layout_.rows - back;
    }
    // The number of the step in a row: the newest that was written there.
    std::int64_t number_at(std::size_t lane, std::size_t row) const noexcept {
        const Lane& l = lanes_[lane];
        return l.head - static_cast<std::int64_t>(l.row > row ? l.row - row : l.row + layout_.rows - row);
    }
    std::int64_t oldest(std::size_t lane) const noexcept { return lanes_[lane].head - lanes_[lane].count; }
    // Whether an episode ends with the step of this row, for whatever reason.
    bool is_end(std::size_t lane, std::size_t row) const noexcept {
        const std::byte* const record = layout_.record(lane, row);
        return load<float>(record + layout_.done) != 0.0F || load<float>(record + layout_.timeout) != 0.0F ||
               (load<std::uint8_t>(record + layout_.flags) & flag_interrupted) != 0;
    }
    bool holds(std::size_t lane, std::int64_t number) const noexcept {
        const Lane& l = lanes_[lane];
        return number < l.head && number >= l.head - l.count;
    }
    std::size_t next(std::size_t row) const noexcept { return row + 1 == layout_.rows ? 0 : row + 1; }
    // All held steps lie in rows below this.
    std::size_t used_rows() const noexcept;

    std::int32_t link(std::size_t lane, std::size_t row) const noexcept {
        return load<std::int32_t>(layout_.record(lane, row) + layout_.link);
    }
    // Where observation leaf `leaf` of the successor of a step lies.
    const std::byte* successor(std::size_t leaf, std::size_t lane, std::size_t row) const noexcept {
        const std::int32_t where = link(lane, row);
        return where == next_row ? layout_.at(layout_.observation[leaf], lane, next(row)) : finals_.at(leaf, where - 1);
    }

  private:
    std::size_t previous(std::size_t row) const noexcept { return (row == 0 ? layout_.rows : row) - 1; }
    std::size_t newest(const Lane& lane) const noexcept { return previous(lane.row); }
    // How many steps its lane went on after a row's step; at least `count` for a row that is not held.
    std::int64_t age(std::size_t lane, std::size_t row) const noexcept;

    void mark_interrupted(std::size_t lane, std::size_t row) noexcept {
        std::byte* const flags = layout_.record(lane, row) + layout_.flags;
        store(flags, static_cast<std::uint8_t>(load<std::uint8_t>(flags) | flag_interrupted));
    }
    void set_link(std::size_t lane, std::size_t row, std::int32_t link) noexcept {
        store(layout_.record(lane, row) + layout_.link, link);
    }
    // Gives back the final of a row that is overwritten or gets another successor.
    void release(std::size_t lane, std::size_t row) {
        const std::int32_t old = link(lane, row);
        if (old > static_cast<std::int32_t>(layout_.lanes))
            finals_.give_back(old - 1);  // head slots stay where they are
    }
    void fill_slot(std::int32_t slot, const std::vector<Column>& from, std::size_t step, std::size_t lane) noexcept;
    // Gives a row a final of its own, with what its successor is now.
    void keep_successor(std::size_t lane, std::size_t row);
    // Puts the successor of a lane's newest step into its head slot.
    void move_to_head_slot(std::size_t lane);
    void trust_all_links();
    bool successor_is_next_row(std::size_t lane, std::size_t row) const noexcept;

    std::size_t count_breaks(const Steps& steps, const std::uint8_t* mask);
    void find_first_breaks(const Steps& steps, const std::uint8_t* mask);
    // Minds the breaks of a call that goes through: `count_breaks` was before it.
    void mind_breaks(const Steps& steps, const std::uint8_t* mask, Breaks& breaks);
    bool is_break(const Steps& steps, std::size_t step, std::size_t lane, double tolerance) const noexcept;
    void append_one(const Steps& steps, const std::uint8_t* mask);
    void write_leaves(const std::vector<Leaf>& leaves, const std::vector<Column>& from) const noexcept;
    void append_many(const Steps& steps, std::size_t lane);
    // Before the next step of a lane is written: minds whether the episode of the oldest step goes on behind it.
    void note_overwritten(std::size_t lane) noexcept {
        Lane& l = lanes_[lane];
        if (l.count == 0) l.begun = l.head;
        if (l.count != static_cast<std::int64_t>(layout_.rows)) return;
        if (is_end(lane, l.row)) l.begun = l.head - l.count + 1;
    }
    // The number at which the episode begins that step `first` of a call goes on with.
    std::int64_t begin_before(const Steps& steps, std::size_t first, std::size_t lane) const noexcept;
    void fill_head_slots(const Steps& steps, const std::uint8_t* mask);
    void write_step(const Steps& steps, std::size_t step, std::size_t lane, std::size_t row);
    void recount();
    void tell_of_append(const Steps& steps, const std::uint8_t* mask);

    Layout layout_;
    std::vector<Lane> lanes_;
    Finals finals_;
    std::vector<Observer*> observers_;
    bool lockstep_ = true;
    std::int64_t held_ = 0;
    std::vector<std::int64_t> before_;
    // Links of rows that are not held count too: successors or positions were assigned from outside.
    bool links_beyond_held_ = false;
    Breaks* minded_ = nullptr;
    // Scratch, (lanes, steps): `apart` where a step's observation is not, bit for bit, the successor of the step before
    // it, so that this needs a final; `ended` where the episode is ended before the step.
    static constexpr std::uint8_t apart = 1;
    static constexpr std::uint8_t ended = 2;
    std::vector<std::uint8_t> breaks_;
    // Scratch of append_one: where the new step of each lane goes.
    struct Place {
        std::size_t lane;
        std::size_t row;
        std::byte* record;
    };
    std::vector<Place> places_;
};

}  // namespace relive
