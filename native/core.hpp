// The timeline as Python sees it: reads what comes from Python, takes the locks, hands batches out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "breaks.hpp"
#include "draw.hpp"
#include "incoming.hpp"
#include "outgoing.hpp"
#include "stream.hpp"
#include "timeline.hpp"
#include "transition.hpp"

namespace relive {

namespace nb = nanobind;

using Bytes = nb::ndarray<std::uint8_t, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// Work up to this many bytes keeps the GIL: letting it go costs more than it gives, and getting it back from a busy
// thread can take milliseconds.
inline constexpr std::size_t long_work = std::size_t{256} << 10;

// Runs `work`, which touches no Python object, under `mutex`. Nobody waits for a mutex with the GIL held.
template <class Work>
auto locked(ForkMutex& mutex, std::size_t bytes, const Work& work) {
    if (bytes <= long_work && mutex.try_lock()) {
        const std::lock_guard guard(mutex, std::adopt_lock);
        return work();
    }
    const nb::gil_scoped_release released;
    const std::lock_guard guard(mutex);
    return work();
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    T* const data = owned->data();
    const std::size_t size = owned->size();
    const nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner);
}

inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

// How many rows a caller wants.
inline std::size_t read_batch_size(nb::handle given) {
    const Py_ssize_t size = PyNumber_AsSsize_t(given.ptr(), PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
        PyErr_Clear();
        const std::string said = nb::repr(given).c_str();
        throw nb::type_error(("batch_size is " + said + ", expected a whole number from 0 on").c_str());
    }
    if (size < 0) throw std::invalid_argument("batch_size is " + std::to_string(size) + ", expected 0 or more");
    return static_cast<std::size_t>(size);
}

// A leaf as Python describes it: (type code, bits, shape, packed, offset in the record, memory of a large leaf
// or None, whether it is one number whose own axis may be missing).
using LeafArgument =
    std::tuple<std::uint8_t, std::uint8_t, std::vector<std::int64_t>, bool, std::size_t, nb::object, bool>;

inline std::size_t item_bytes(const DLType& dtype, const std::vector<std::int64_t>& shape) {
    std::size_t bytes = dtype.bits / 8U;
    for (const std::int64_t length : shape) {
        require(length >= 0 && (length == 0 || bytes <= SIZE_MAX / 2 / static_cast<std::size_t>(length)),
                "a leaf too large, or of negative length");
        bytes *= static_cast<std::size_t>(length);
    }
    return bytes;
}

class Core {
  public:
    Core(std::size_t rows, std::size_t lanes, Bytes records, std::size_t record_bytes,
         const std::vector<LeafArgument>& observation, const std::vector<LeafArgument>& action,
         const std::vector<LeafArgument>& extra, const std::vector<std::size_t>& reward_shape,
         std::vector<std::size_t> offsets, bool observation_is_tree, bool action_is_tree, nb::type_object array_type,
         const std::vector<std::tuple<nb::object, std::uint8_t, std::uint8_t>>& dtypes, bool fields_are_known)
        : numpy_(array_type, dtypes),
          fields_are_known_(fields_are_known),
          observation_is_tree_(observation_is_tree),
          action_is_tree_(action_is_tree) {
        Layout layout;
        require(rows > 0 && lanes > 0, "rows and lanes are positive");
        require(offsets.size() == 5, "offsets of reward, done, timeout, link, flags");
        require(record_bytes > 0 && rows <= SIZE_MAX / lanes && rows * lanes == records.size() / record_bytes &&
                    records.size() % record_bytes == 0,
                "records do not fit rows and lanes");
        layout.rows = rows;
        layout.lanes = lanes;
        layout.record_bytes = record_bytes;
        layout.records = memory(records);
        std::size_t reward_width = 1;
        for (const std::size_t length : reward_shape) {
            require(length <= record_bytes, "a reward beyond the record");
            reward_width *= length;
        }
        reward_has_axis_ = !reward_shape.empty();
        require(reward_shape.size() <= 1, "a reward has one axis at most");
        require(reward_width > 0 && reward_width <= record_bytes / sizeof(float), "a reward has one number or more");
        layout.reward.offset = offsets[0];
        layout.reward.bytes = reward_width * sizeof(float);
        layout.done = offsets[1];
        layout.timeout = offsets[2];
        layout.link = offsets[3];
        layout.flags = offsets[4];
        for (std::size_t i = 0; i < 5; ++i) {
            const std::size_t bytes = i == 0 ? layout.reward.bytes : i < 4 ? 4 : 1;
            require(bytes <= record_bytes && offsets[i] <= record_bytes - bytes, "a field beyond the record");
        }
        layout.observation = read_leaf_arguments(observation, layout, observation_specs_);
        layout.action = read_leaf_arguments(action, layout, action_specs_);
        require(!layout.observation.empty() && !layout.action.empty(),
                "an observation and an action have at least one leaf");
        layout.extra = read_leaf_arguments(extra, layout, extra_specs_);
        reward_width_ = reward_width;
        timeline_ = std::make_unique<Timeline>(std::move(layout));
        arena_ = Arena::create();
        list_fields();
    }
    ~Core() { arena_->release(); }
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    // 0: stored. > 0: so many finals are lacking, nothing was changed. -1: not understood, or where `strict` a NaN reward or
    // a flag that is neither 0 nor 1: make it plain arrays, or an error.
    std::int64_t append(nb::handle observation, nb::handle successor, nb::handle action, nb::handle reward,
                        nb::handle done, nb::handle timeout, bool gymnasium_words, nb::handle infos, nb::handle mask,
                        bool strict, std::int64_t steps, nb::handle extra, Breaks* breaks) {
        const std::size_t lanes = timeline_->layout().lanes;
        const Leading leading{steps >= 0, steps >= 0 ? static_cast<std::size_t>(steps) : 1, lanes};
        const std::size_t scalars = leading.steps * lanes;
        Borrowed borrowed(numpy_, fields_are_known_);
        Steps in;
        in.count = leading.steps;
        std::vector<float> floats_in((reward_width_ + 2) * scalars, 0.0F);
        float* const rewards = floats_in.data();
        float* const dones = rewards + reward_width_ * scalars;
        float* const timeouts = dones + scalars;
        std::vector<std::uint8_t> lane_mask;
        if (!read_leaves(borrowed, observation, observation_specs_, observation_is_tree_, leading, in.observation))
            return -1;
        if (!read_leaves(borrowed, successor, observation_specs_, observation_is_tree_, leading, in.successor))
            return -1;
        if (!read_leaves(borrowed, action, action_specs_, action_is_tree_, leading, in.action)) return -1;
        if (!extra_specs_.empty() && !read_leaves(borrowed, extra, extra_specs_, true, leading, in.extra)) return -1;
        if (!(reward_width_ == 1 && !reward_has_axis_
                  ? read_scalars(borrowed, reward, leading, rewards)
                  : read_vectors(borrowed, reward, leading, reward_width_, rewards)))
            return -1;
        if (!read_scalars(borrowed, done, leading, dones)) return -1;
        if (!timeout.is_none() && !read_scalars(borrowed, timeout, leading, timeouts)) return -1;
        if (!infos.is_none() && !(leading.has_steps ? read_many_infos(infos, info_keys_, leading, timeouts)
                                                    : read_infos(infos, info_keys_, lanes, timeouts))) {
            return -1;
        }
        if (!mask.is_none() && (leading.has_steps || !read_mask(borrowed, mask, leading, lane_mask))) return -1;
        if (strict && !are_plain(rewards, reward_width_, dones, scalars, lane_mask)) return -1;
        if (gymnasium_words) {  // `done` is terminated, `timeout` truncated; termination wins
            for (std::size_t i = 0; i < scalars; ++i) {
                const bool terminated = dones[i] != 0.0F;
                const bool truncated = timeouts[i] != 0.0F;
                dones[i] = terminated || truncated ? 1.0F : 0.0F;
                timeouts[i] = truncated && !terminated ? 1.0F : 0.0F;
            }
        }
        const auto column = [&](float* values, std::size_t width) {
            const auto item = static_cast<std::ptrdiff_t>(width * sizeof(float));
            return Column{reinterpret_cast<const std::byte*>(values), static_cast<std::ptrdiff_t>(lanes) * item, item};
        };
        in.reward = column(rewards, reward_width_);
        in.done = column(dones, 1);
        in.timeout = column(timeouts, 1);
        const std::uint8_t* const active = lane_mask.empty() ? nullptr : lane_mask.data();
        return locked(timeline_->mutex, scalars * step_bytes_,
                      [&] { return static_cast<std::int64_t>(timeline_->append(in, active, breaks)); });
    }

    // Memory for `slots` more finals: an array (slots, bytes of an item) of every observation leaf.
    void add_finals(std::size_t slots, const std::vector<Bytes>& arrays) {
        const Layout& layout = timeline_->layout();
        require(arrays.size() == layout.observation.size(), "a chunk of finals has an array for every leaf");
        std::vector<std::byte*> pointers;
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            require(arrays[i].size() == slots * layout.observation[i].bytes, "a chunk of finals has another size");
            pointers.push_back(memory(arrays[i]));
        }
        locked(timeline_->mutex, 0, [&] { timeline_->finals().add_chunk(slots, std::move(pointers)); });
    }

    // What is minded where a call of append does not say: a Breaks, or None.
    void mind(nb::object breaks) {
        if (!breaks.is_none() && !nb::isinstance<Breaks>(breaks)) throw nb::type_error("breaks are a Breaks, or None");
        Breaks* const minded = breaks.is_none() ? nullptr : nb::cast<Breaks*>(breaks);
        locked(timeline_->mutex, 0, [&] { timeline_->mind(minded); });
        minded_ = std::move(breaks);  // what it replaces is let go only now, when no append looks at it any more
    }

    void interrupt(const std::vector<std::size_t>& lanes) {
        locked(timeline_->mutex, 0, [&] {
            for (const std::size_t lane : lanes) timeline_->interrupt(lane);
        });
    }

    void clear() {
        locked(timeline_->mutex, 0, [&] { timeline_->clear(); });
    }

    std::size_t declare(std::size_t position, std::size_t count) {
        return locked(timeline_->mutex, long_work + 1, [&] { return timeline_->declare(position, count); });
    }

    void compact() {
        locked(timeline_->mutex, long_work + 1, [&] { timeline_->compact(); });
    }

    // Arrays (rows, lanes, bytes of an item) of every observation leaf.
    std::size_t assign_successors(const std::vector<ConstBytes>& values) {
        const Layout& layout = timeline_->layout();
        require(values.size() == layout.observation.size(), "an array for every observation leaf");
        std::vector<Column> columns;
        for (std::size_t i = 0; i < values.size(); ++i)
            columns.push_back(whole_column(values[i], layout.observation[i]));
        return locked(timeline_->mutex, long_work + 1, [&] { return timeline_->assign_successors(columns); });
    }

    std::size_t assign_observation(std::size_t leaf, const ConstBytes& values) {
        const Layout& layout = timeline_->layout();
        require(leaf < layout.observation.size(), "no such observation leaf");
        const Column column = whole_column(values, layout.observation[leaf]);
        return locked(timeline_->mutex, long_work + 1, [&] { return timeline_->assign_observation(leaf, column); });
    }

    // A batch of uniformly drawn transitions, each field made a tensor by `convert`, and `nones` times None; None alone
    // from an empty buffer.
    nb::object sample(std::size_t size, Stream& stream, nb::handle convert, std::size_t nones = 0) {
        const Stream::Locked locked_stream(stream);
        return gather(size, convert, nones, [&](std::vector<Pick>& picks) {
            if (timeline_->held() == 0) return false;
            draw_uniform(*timeline_, locked_stream.bits(), size, scratch_, picks);
            return true;
        });
    }

    // The same of given rows and lanes.
    nb::object transitions_at(const Indices& rows, const Indices& lanes, nb::handle convert) {
        require(rows.size() == lanes.size(), "as many rows as lanes");
        const std::vector<Pick> given = checked_picks(rows, lanes);
        return gather(given.size(), convert, 0, [&](std::vector<Pick>& picks) {
            picks = given;
            return true;
        });
    }

    // The same of given handles; None where one is not held any more.
    nb::object transitions_of(const Indices& handles, nb::handle convert) {
        return gather(handles.size(), convert, 0, [&](std::vector<Pick>& picks) {
            for (std::size_t i = 0; i < handles.size(); ++i) {
                Pick pick;
                if (!find(handles.data()[i], pick)) return false;
                picks.push_back(pick);
            }
            return true;
        });
    }

    // Which of these handles are held.
    nb::ndarray<nb::numpy, bool, nb::ndim<1>> held_handles(const Indices& handles) {
        auto held = std::make_unique<bool[]>(handles.size());
        locked(timeline_->mutex, handles.size() * sizeof(std::int64_t), [&] {
            Pick pick;
            for (std::size_t i = 0; i < handles.size(); ++i) held[i] = find(handles.data()[i], pick);
        });
        bool* const data = held.release();
        const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<bool*>(p); });
        return nb::ndarray<nb::numpy, bool, nb::ndim<1>>(data, {handles.size()}, owner);
    }

    // The handles of all held steps, lane by lane, oldest first.
    nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> all_handles() {
        std::vector<std::int64_t> handles;
        locked(timeline_->mutex, long_work + 1, [&] {
            handles.reserve(static_cast<std::size_t>(timeline_->held()));
            const auto lanes = static_cast<std::int64_t>(timeline_->lanes().size());
            for (std::int64_t lane = 0; lane < lanes; ++lane) {
                const Lane& l = timeline_->lanes()[static_cast<std::size_t>(lane)];
                for (std::int64_t n = l.head - l.count; n < l.head; ++n) handles.push_back(n * lanes + lane);
            }
        });
        return to_numpy(std::move(handles));
    }

    // Overwrites one field (0 reward, 1 done, 2 timeout, 3 + i action leaf i, then the extra leaves) of the steps that
    // are still held, in order; returns how many were not.
    std::size_t set_field(const Indices& handles, std::size_t field, const ConstBytes& values) {
        const Layout& layout = timeline_->layout();
        const std::size_t first_extra = 3 + layout.action.size();
        require(field < first_extra + layout.extra.size(), "no such field");
        Leaf leaf;
        leaf.bytes = sizeof(float);
        leaf.offset = field == 1 ? layout.done : layout.timeout;
        if (field == 0) leaf = layout.reward;
        if (field >= first_extra) {
            leaf = layout.extra[field - first_extra];
        } else if (field >= 3) {
            leaf = layout.action[field - 3];
        }
        require(values.size() == handles.size() * leaf.bytes, "values do not fit the handles");
        const auto* const data = reinterpret_cast<const std::byte*>(values.data());
        return locked(timeline_->mutex, values.size(), [&] {
            std::size_t dropped = 0;
            for (std::size_t i = 0; i < handles.size(); ++i) {
                Pick pick;
                if (find(handles.data()[i], pick)) {
                    copy_bytes(layout.at(leaf, pick.lane, pick.row), data + i * leaf.bytes, leaf.bytes);
                } else {
                    ++dropped;
                }
            }
            if (field == 1 || field == 2) timeline_->renew();
            return dropped;
        });
    }

    // Leaf `leaf` of the successors of given rows and lanes, into `out` (size, bytes of an item).
    void successors(std::size_t leaf, const Indices& rows, const Indices& lanes, const Bytes& out) {
        const Layout& layout = timeline_->layout();
        require(leaf < layout.observation.size(), "no such observation leaf");
        require(rows.size() == lanes.size(), "as many rows as lanes");
        const Leaf& which = layout.observation[leaf];
        require(out.size() == rows.size() * which.bytes, "out does not fit");
        const std::vector<Pick> picks = checked_picks(rows, lanes);
        auto* const to = reinterpret_cast<std::byte*>(out.data());
        locked(timeline_->mutex, out.size(), [&] {
            for (std::size_t i = 0; i < picks.size(); ++i) {
                copy_bytes(to + i * which.bytes, timeline_->successor(leaf, picks[i].lane, picks[i].row), which.bytes);
            }
        });
    }

    // Of all lanes the heads, the counts, and where the episode of the oldest step began.
    std::array<std::vector<std::int64_t>, 3> lanes() {
        return heads_and_counts(locked(timeline_->mutex, 0, [&] { return timeline_->lanes(); }));
    }

    // (position, count) that all lanes share, or (-1, -1).
    std::pair<std::int64_t, std::int64_t> common() {
        return locked(timeline_->mutex, 0, [&]() -> std::pair<std::int64_t, std::int64_t> {
            const Lane& lane = timeline_->lanes()[0];
            if (!timeline_->in_lockstep()) return {-1, -1};
            return {static_cast<std::int64_t>(timeline_->row_of(lane.head)), lane.count};
        });
    }

    std::int64_t held() {
        return locked(timeline_->mutex, 0, [&] { return timeline_->held(); });
    }

    // Slots that the finals have, that were ever used, and that are live.
    std::tuple<std::size_t, std::size_t, std::size_t> finals() {
        return locked(timeline_->mutex, 0, [&] {
            const Finals& f = timeline_->finals();
            return std::make_tuple(f.capacity(), f.high_water(), f.live());
        });
    }

    std::size_t arena_bytes() { return arena_->bytes(); }

    // Puts a snapshot's state back: records and finals are already in place, and checked here.
    void restore(const std::vector<std::int64_t>& heads, const std::vector<std::int64_t>& counts,
                 const std::vector<std::int64_t>& begun, std::size_t high_water) {
        require(heads.size() == counts.size() && heads.size() == begun.size(), "as many heads as counts and begins");
        std::vector<Lane> lanes;
        for (std::size_t i = 0; i < heads.size(); ++i) lanes.push_back({heads[i], counts[i], 0, begun[i]});
        locked(timeline_->mutex, long_work + 1, [&] { timeline_->restore(lanes, high_water); });
    }

    // Copies the first `rows` rows of every lane and the finals below `high_water` as they are at one instant: records,
    // large leaves, and the finals of every observation leaf. Returns heads and counts, or None where held steps or
    // finals do not fit any more (the caller then makes more room).
    nb::object snapshot(std::size_t rows, std::size_t high_water, const Bytes& records, const std::vector<Bytes>& large,
                        const std::vector<Bytes>& finals) {
        const Layout& layout = timeline_->layout();
        require(rows <= layout.rows && records.size() == rows * layout.lanes * layout.record_bytes,
                "records do not fit");
        std::vector<Leaf> apart;
        for (const std::vector<Leaf>* leaves : {&layout.observation, &layout.action, &layout.extra}) {
            for (const Leaf& leaf : *leaves) {
                if (!leaf.packed) apart.push_back(leaf);
            }
        }
        require(large.size() == apart.size(), "an array for every large leaf");
        require(finals.size() == layout.observation.size(), "finals of every observation leaf");
        for (std::size_t i = 0; i < apart.size(); ++i) {
            require(large[i].size() == rows * layout.lanes * apart[i].bytes, "a large leaf does not fit");
        }
        for (std::size_t i = 0; i < finals.size(); ++i) {
            require(finals[i].size() == high_water * layout.observation[i].bytes, "finals do not fit");
        }
        std::vector<Lane> at_that_instant;
        const bool fits = locked(timeline_->mutex, long_work + 1, [&] {
            if (timeline_->used_rows() > rows || timeline_->finals().high_water() > high_water) return false;
            at_that_instant = timeline_->lanes();
            copy_lanes(layout.records, layout.record_bytes, rows, records);
            for (std::size_t i = 0; i < apart.size(); ++i) copy_lanes(apart[i].base, apart[i].bytes, rows, large[i]);
            const std::size_t slots = std::min(timeline_->finals().high_water(), timeline_->finals().capacity());
            for (std::size_t i = 0; i < finals.size(); ++i) {
                const std::size_t bytes = layout.observation[i].bytes;
                for (std::size_t slot = 0; slot < slots; ++slot) {
                    std::memcpy(finals[i].data() + slot * bytes,
                                timeline_->finals().at(i, static_cast<std::int32_t>(slot)), bytes);
                }
            }
            return true;
        });
        if (!fits) return nb::none();
        return nb::cast(heads_and_counts(at_that_instant));
    }

    // How many rows, from row 0, and finals a snapshot must have room for.
    std::pair<std::size_t, std::size_t> used() {
        return locked(timeline_->mutex, 0,
                      [&] { return std::make_pair(timeline_->used_rows(), timeline_->finals().high_water()); });
    }

    // For what draws from it (draws.hpp).
    Timeline& timeline() noexcept { return *timeline_; }
    Arena& arena() noexcept { return *arena_; }
    const std::vector<LeafSpec>& observation_specs() const noexcept { return observation_specs_; }
    const std::vector<LeafSpec>& action_specs() const noexcept { return action_specs_; }
    const std::vector<LeafSpec>& extra_specs() const noexcept { return extra_specs_; }

    // The place of a held step, by its handle: number * lanes + lane.
    bool find(std::int64_t handle, Pick& pick) const {
        if (handle < 0) return false;
        const auto lanes = static_cast<std::int64_t>(timeline_->lanes().size());
        const std::int64_t number = lanes == 1 ? handle : handle / lanes;
        pick.lane = lanes == 1 ? 0 : static_cast<std::size_t>(handle % lanes);
        if (!timeline_->holds(pick.lane, number)) return false;
        pick.row = timeline_->row_held(pick.lane, number);
        return true;
    }

    // Flags were written from outside.
    void renew() {
        locked(timeline_->mutex, long_work + 1, [&] { timeline_->renew(); });
    }

  private:
    std::byte* memory(const Bytes& array) {
        kept_.push_back(nb::cast(array));
        return reinterpret_cast<std::byte*>(array.data());
    }

    static std::array<std::vector<std::int64_t>, 3> heads_and_counts(const std::vector<Lane>& lanes) {
        std::array<std::vector<std::int64_t>, 3> out;
        for (const Lane& lane : lanes) {
            out[0].push_back(lane.head);
            out[1].push_back(lane.count);
            out[2].push_back(lane.begun);
        }
        return out;
    }

    void copy_lanes(const std::byte* from, std::size_t item, std::size_t rows, const Bytes& to) const {
        const Layout& layout = timeline_->layout();
        for (std::size_t lane = 0; lane < layout.lanes; ++lane) {
            std::memcpy(to.data() + lane * rows * item, from + lane * layout.rows * item, rows * item);
        }
    }

    std::vector<Leaf> read_leaf_arguments(const std::vector<LeafArgument>& arguments, const Layout& layout,
                                          std::vector<LeafSpec>& specs) {
        std::vector<Leaf> leaves;
        for (const auto& [code, bits, shape, packed, offset, array, bare] : arguments) {
            LeafSpec spec{{code, bits, 1}, shape, 0, bare};
            spec.bytes = item_bytes(spec.dtype, shape);
            Leaf leaf;
            leaf.bytes = spec.bytes;
            leaf.alike = alike_of(spec.dtype);
            leaf.packed = packed;
            if (packed) {
                require(leaf.bytes <= layout.record_bytes && offset <= layout.record_bytes - leaf.bytes,
                        "a leaf beyond the record");
                leaf.offset = offset;
            } else {
                const auto bytes = nb::cast<Bytes>(array);
                require(bytes.size() == layout.rows * layout.lanes * leaf.bytes,
                        "a leaf's array does not fit rows and lanes");
                leaf.base = memory(bytes);
            }
            leaves.push_back(leaf);
            specs.push_back(std::move(spec));
        }
        return leaves;
    }

    void list_fields() {
        const auto list = [&](const std::vector<LeafSpec>& specs) {
            for (const LeafSpec& spec : specs) fields_.push_back({spec.dtype, spec.shape, spec.bytes});
        };
        list(observation_specs_);
        list(action_specs_);
        list(observation_specs_);
        fields_.push_back({{dl_float, 32, 1}, {1}, sizeof(float)});
        fields_.push_back(
            {{dl_float, 32, 1}, {static_cast<std::int64_t>(reward_width_)}, reward_width_ * sizeof(float)});
        for (const Field& field : fields_) step_bytes_ += field.bytes;
        for (const LeafSpec& spec : extra_specs_) step_bytes_ += spec.bytes;
    }

    // Every reward is finite (an infinite one may have been cast) and every flag 0 or 1, but for lanes that are left out.
    static bool are_plain(const float* rewards, std::size_t width, const float* dones, std::size_t size,
                          const std::vector<std::uint8_t>& mask) {
        constexpr float largest = std::numeric_limits<float>::max();
        const auto is_odd = [&](std::size_t i) {
            int unbounded = 0;
            for (std::size_t k = 0; k < width; ++k) unbounded |= std::fabs(rewards[i * width + k]) <= largest ? 0 : 1;
            const int no_flag = dones[i] == 0.0F || dones[i] == 1.0F ? 0 : 1;
            return unbounded | no_flag;
        };
        int odd = 0;
        for (std::size_t i = 0; i < size; ++i) odd |= is_odd(i);
        if (!odd || mask.empty()) return !odd;
        for (std::size_t i = 0; i < size; ++i) {
            if (mask[i] && is_odd(i)) return false;
        }
        return true;
    }

    static Column whole_column(const ConstBytes& values, const Leaf& leaf, const Layout& layout) {
        require(values.size() == layout.rows * layout.lanes * leaf.bytes, "values do not fit rows and lanes");
        const auto item = static_cast<std::ptrdiff_t>(leaf.bytes);
        return {reinterpret_cast<const std::byte*>(values.data()), item * static_cast<std::ptrdiff_t>(layout.lanes),
                item};
    }
    Column whole_column(const ConstBytes& values, const Leaf& leaf) const {
        return whole_column(values, leaf, timeline_->layout());
    }

    std::vector<Pick> checked_picks(const Indices& rows, const Indices& lanes) const {
        const Layout& layout = timeline_->layout();
        std::vector<Pick> picks(rows.size());
        for (std::size_t i = 0; i < picks.size(); ++i) {
            picks[i] = {static_cast<std::size_t>(lanes.data()[i]), static_cast<std::size_t>(rows.data()[i])};
            if (picks[i].row >= layout.rows || picks[i].lane >= layout.lanes)
                throw nb::index_error("row or lane out of bounds");
        }
        return picks;
    }

    // Memory for the batch first, since no lock is taken under another one; then choice and copy under one lock.
    template <class Choose>
    nb::object gather(std::size_t size, nb::handle convert, std::size_t nones, const Choose& choose) {
        BatchMemory memory_of_batch(*arena_, fields_, size);
        TransitionBatch batch;
        std::size_t field = 0;
        for (std::size_t i = 0; i < observation_specs_.size(); ++i)
            batch.observation.push_back(memory_of_batch.data(field++));
        for (std::size_t i = 0; i < action_specs_.size(); ++i) batch.action.push_back(memory_of_batch.data(field++));
        for (std::size_t i = 0; i < observation_specs_.size(); ++i)
            batch.successor.push_back(memory_of_batch.data(field++));
        batch.done = memory_of_batch.data(field++);
        batch.reward = memory_of_batch.data(field++);
        const bool chosen = locked(timeline_->mutex, size * step_bytes_, [&] {
            picks_.clear();
            if (!choose(picks_)) return false;
            gather_transitions(*timeline_, picks_, batch);
            return true;
        });
        return chosen ? memory_of_batch.hand_out(convert, nones) : nb::none();
    }

    NumpyTypes numpy_;
    bool fields_are_known_;
    InfoKeys info_keys_;
    bool observation_is_tree_;
    bool action_is_tree_;
    std::vector<nb::object> kept_;  // the arrays whose memory is used
    nb::object minded_;             // keeps alive what the timeline minds
    std::vector<LeafSpec> observation_specs_;
    std::vector<LeafSpec> action_specs_;
    std::vector<LeafSpec> extra_specs_;
    std::size_t reward_width_ = 1;
    bool reward_has_axis_ = false;
    std::vector<Field> fields_;
    std::size_t step_bytes_ = 0;
    std::unique_ptr<Timeline> timeline_;
    Arena* arena_ = nullptr;
    // Scratch, under the timeline's mutex.
    std::vector<std::int64_t> scratch_;
    std::vector<Pick> picks_;
};

// The usual calls of a replay buffer with all that does not change from call to call bound beforehand: between two
// gradient steps nothing of the interpreter is in a cache, and every attribute that is looked up costs microseconds.
class Usual {
  public:
    Usual(nb::object core, nb::object stream, nb::object convert, nb::object kind)
        : core_(std::move(core)),
          stream_(std::move(stream)),
          convert_(std::move(convert)),
          kind_(std::move(kind)),
          new_tuple_(nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type)).attr("__new__")),
          to_core_(nb::cast<Core&>(core_)),
          to_stream_(nb::cast<Stream&>(stream_)) {}

    // As Core::append takes them, for one step in the seed's words.
    std::int64_t add(nb::handle observation, nb::handle successor, nb::handle action, nb::handle reward,
                     nb::handle done, nb::handle infos, bool strict) {
        return to_core_.append(observation, successor, action, reward, done, nb::none(), false, infos, nb::none(),
                               strict, -1, nb::none(), nullptr);
    }

    // A uniform batch as the named tuple `kind`, which has a last field for discounts; None from an empty buffer.
    nb::object sample(nb::handle batch_size) {
        const nb::object fields = to_core_.sample(read_batch_size(batch_size), to_stream_, convert_, 1);
        return fields.is_none() ? fields : new_tuple_(kind_, fields);
    }

  private:
    nb::object core_;
    nb::object stream_;
    nb::object convert_;
    nb::object kind_;
    nb::object new_tuple_;  // tuple.__new__
    Core& to_core_;
    Stream& to_stream_;
};

}  // namespace relive
