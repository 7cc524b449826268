// The Python face of the core: `relive._native`. It checks and converts what comes from Python, takes the locks,
// and knows nothing of spaces or torch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
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
#include "draw.hpp"
#include "gae.hpp"
#include "incoming.hpp"
#include "outgoing.hpp"
#include "stream.hpp"
#include "timeline.hpp"
#include "transition.hpp"
#include "trees_module.hpp"

namespace nb = nanobind;

namespace relive {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// Work up to this many bytes keeps the GIL: letting it go costs more than it gives, and getting it back from a busy
// thread can take milliseconds.
constexpr std::size_t long_work = std::size_t{256} << 10;

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

void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

// A leaf as Python describes it: (type code, bits, shape, packed, offset in the record, memory of a large leaf
// or None, whether it is one number whose own axis may be missing).
using LeafArgument =
    std::tuple<std::uint8_t, std::uint8_t, std::vector<std::int64_t>, bool, std::size_t, nb::object, bool>;

std::size_t item_bytes(const DLType& dtype, const std::vector<std::int64_t>& shape) {
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
         std::vector<std::size_t> offsets, bool observation_is_tree, bool action_is_tree, nb::type_object array_type,
         const std::vector<std::tuple<nb::object, std::uint8_t, std::uint8_t>>& dtypes, bool fields_are_known)
        : numpy_(array_type, dtypes),
          fields_are_known_(fields_are_known),
          timeout_key_(nb::steal(PyUnicode_InternFromString("TimeLimit.truncated"))),
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
        layout.reward = offsets[0];
        layout.done = offsets[1];
        layout.timeout = offsets[2];
        layout.link = offsets[3];
        layout.flags = offsets[4];
        for (std::size_t i = 0; i < 5; ++i) {
            const std::size_t bytes = i < 4 ? 4 : 1;
            require(bytes <= record_bytes && offsets[i] <= record_bytes - bytes, "a field beyond the record");
        }
        layout.observation = read_leaf_arguments(observation, layout, observation_specs_);
        layout.action = read_leaf_arguments(action, layout, action_specs_);
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
                        bool strict, std::int64_t steps) {
        const std::size_t lanes = timeline_->layout().lanes;
        const Leading leading{steps >= 0, steps >= 0 ? static_cast<std::size_t>(steps) : 1, lanes};
        const std::size_t scalars = leading.steps * lanes;
        Borrowed borrowed(numpy_, fields_are_known_);
        Steps in;
        in.count = leading.steps;
        std::vector<float> floats_in(3 * scalars, 0.0F);
        float* const rewards = floats_in.data();
        float* const dones = rewards + scalars;
        float* const timeouts = dones + scalars;
        std::vector<std::uint8_t> lane_mask;
        if (!read_leaves(borrowed, observation, observation_specs_, observation_is_tree_, leading, in.observation))
            return -1;
        if (!read_leaves(borrowed, successor, observation_specs_, observation_is_tree_, leading, in.successor))
            return -1;
        if (!read_leaves(borrowed, action, action_specs_, action_is_tree_, leading, in.action)) return -1;
        if (!read_scalars(borrowed, reward, leading, rewards)) return -1;
        if (!read_scalars(borrowed, done, leading, dones)) return -1;
        if (!timeout.is_none() && !read_scalars(borrowed, timeout, leading, timeouts)) return -1;
        if (!infos.is_none() && !(leading.has_steps ? read_many_infos(infos, timeout_key_.ptr(), leading, timeouts)
                                                    : read_infos(infos, timeout_key_.ptr(), lanes, timeouts))) {
            return -1;
        }
        if (!mask.is_none() && (leading.has_steps || !read_mask(borrowed, mask, leading, lane_mask))) return -1;
        if (strict && !are_plain(rewards, dones, scalars, lane_mask)) return -1;
        if (gymnasium_words) {  // `done` is terminated, `timeout` truncated; termination wins
            for (std::size_t i = 0; i < scalars; ++i) {
                const bool terminated = dones[i] != 0.0F;
                const bool truncated = timeouts[i] != 0.0F;
                dones[i] = terminated || truncated ? 1.0F : 0.0F;
                timeouts[i] = truncated && !terminated ? 1.0F : 0.0F;
            }
        }
        const auto column = [&](float* values) {
            return Column{reinterpret_cast<const std::byte*>(values),
                          static_cast<std::ptrdiff_t>(lanes * sizeof(float)),
                          static_cast<std::ptrdiff_t>(sizeof(float))};
        };
        in.reward = column(rewards);
        in.done = column(dones);
        in.timeout = column(timeouts);
        const std::uint8_t* const active = lane_mask.empty() ? nullptr : lane_mask.data();
        return locked(timeline_->mutex, scalars * step_bytes_,
                      [&] { return static_cast<std::int64_t>(timeline_->append(in, active)); });
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

    // Overwrites one field (0 reward, 1 done, 2 timeout, 3 + i action leaf i) of the steps that are still held, in
    // order; returns how many were not.
    std::size_t set_field(const Indices& handles, std::size_t field, const ConstBytes& values) {
        const Layout& layout = timeline_->layout();
        require(field < 3 + layout.action.size(), "no such field");
        Leaf leaf;
        leaf.bytes = sizeof(float);
        leaf.offset = field == 0 ? layout.reward : field == 1 ? layout.done : layout.timeout;
        if (field >= 3) leaf = layout.action[field - 3];
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

    // Heads and counts of all lanes.
    std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> lanes() {
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
                 std::size_t high_water) {
        require(heads.size() == counts.size(), "as many heads as counts");
        std::vector<Lane> lanes;
        for (std::size_t i = 0; i < heads.size(); ++i) lanes.push_back({heads[i], counts[i], 0});
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
        for (const std::vector<Leaf>* leaves : {&layout.observation, &layout.action}) {
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

  private:
    std::byte* memory(const Bytes& array) {
        kept_.push_back(nb::cast(array));
        return reinterpret_cast<std::byte*>(array.data());
    }

    static std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> heads_and_counts(
        const std::vector<Lane>& lanes) {
        std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> out;
        for (const Lane& lane : lanes) {
            out.first.push_back(lane.head);
            out.second.push_back(lane.count);
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
        require(!arguments.empty(), "an observation and an action have at least one leaf");
        std::vector<Leaf> leaves;
        for (const auto& [code, bits, shape, packed, offset, array, bare] : arguments) {
            LeafSpec spec{{code, bits, 1}, shape, 0, bare};
            spec.bytes = item_bytes(spec.dtype, shape);
            Leaf leaf;
            leaf.bytes = spec.bytes;
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
        const Field scalar{{dl_float, 32, 1}, {1}, sizeof(float)};
        fields_.push_back(scalar);
        fields_.push_back(scalar);
        for (const Field& field : fields_) step_bytes_ += field.bytes;
    }

    // Every reward is finite (an infinite one may have been cast) and every flag 0 or 1, but for lanes that are left out.
    static bool are_plain(const float* rewards, const float* dones, std::size_t size,
                          const std::vector<std::uint8_t>& mask) {
        constexpr float largest = std::numeric_limits<float>::max();
        const auto is_odd = [&](std::size_t i) {
            const int unbounded = std::fabs(rewards[i]) <= largest ? 0 : 1;  // NaN too
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

    // The place of a held step, by its handle: number * lanes + lane.
    bool find(std::int64_t handle, Pick& pick) const {
        if (handle < 0) return false;
        const auto lanes = static_cast<std::int64_t>(timeline_->lanes().size());
        const std::int64_t number = handle / lanes;
        pick.lane = static_cast<std::size_t>(handle % lanes);
        pick.row = timeline_->row_of(number);
        return timeline_->holds(pick.lane, number);
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
    nb::object timeout_key_;
    bool observation_is_tree_;
    bool action_is_tree_;
    std::vector<nb::object> kept_;  // the arrays whose memory is used
    std::vector<LeafSpec> observation_specs_;
    std::vector<LeafSpec> action_specs_;
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
                               strict, -1);
    }

    // A uniform batch as the named tuple `kind`, which has a last field for discounts; None from an empty buffer.
    nb::object sample(nb::handle batch_size) {
        const Py_ssize_t size = PyNumber_AsSsize_t(batch_size.ptr(), PyExc_OverflowError);
        if (size == -1 && PyErr_Occurred()) throw nb::python_error();
        if (size < 0) throw std::invalid_argument("batch_size is " + std::to_string(size) + ", expected 0 or more");
        const nb::object fields = to_core_.sample(static_cast<std::size_t>(size), to_stream_, convert_, 1);
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

// Whether a NumPy array's fields lie where NumpyFields says, tried on an array of which all is known.
bool numpy_fields_match(nb::handle array, std::uintptr_t address, const std::vector<std::int64_t>& shape,
                        const std::vector<std::int64_t>& strides, nb::handle dtype) {
    const auto* const fields = reinterpret_cast<const NumpyFields*>(array.ptr());
    return sizeof(Py_ssize_t) == sizeof(std::int64_t) && reinterpret_cast<std::uintptr_t>(fields->data) == address &&
           fields->nd == static_cast<int>(shape.size()) && fields->descr == dtype.ptr() &&
           std::equal(shape.begin(), shape.end(), fields->dimensions) &&
           std::equal(strides.begin(), strides.end(), fields->strides);
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> draw(std::uint64_t bound, std::size_t size, Stream& stream) {
    require(bound > 0, "the bound of a draw is positive");
    std::vector<std::int64_t> out(size);
    {
        const Stream::Locked locked_stream(stream);
        draw_below(locked_stream.bits(), bound, size, out.data());
    }
    return to_numpy(std::move(out));
}

void compute_gae(const Floats& rewards, const Floats& values, const Floats& episode_starts, const Floats& last_values,
                 const Floats& dones, nb::ndarray<float, nb::c_contig, nb::device::cpu> advantages,
                 nb::ndarray<float, nb::c_contig, nb::device::cpu> returns, std::size_t steps, double gamma,
                 double gamma_lambda, bool wide_delta, bool wide_sum) {
    const std::size_t envs = last_values.size();
    const std::size_t total = steps * envs;
    require(rewards.size() == total && values.size() == total && episode_starts.size() == total,
            "inputs of (steps, envs)");
    require(dones.size() == envs, "dones and last_values of (envs,)");
    require(advantages.size() == total && returns.size() == total, "outputs of (steps, envs)");
    const Rollout rollout{steps,
                          envs,
                          rewards.data(),
                          values.data(),
                          episode_starts.data(),
                          last_values.data(),
                          dones.data(),
                          advantages.data(),
                          returns.data()};
    const nb::gil_scoped_release released;
    if (wide_delta) {
        gae<double, double>(rollout, gamma, gamma_lambda);
    } else if (wide_sum) {
        gae<float, double>(rollout, gamma, gamma_lambda);
    } else {
        gae<float, float>(rollout, gamma, gamma_lambda);
    }
}

}  // namespace
}  // namespace relive

NB_MODULE(_native, m) {
    using relive::Core;
    m.doc() = "The native core of relive; its Python face is the rest of the package.";
    nb::class_<relive::Stream>(m, "Stream").def(nb::init<nb::object, bool>(), nb::arg("source"), nb::arg("ask"));
    nb::class_<Core>(m, "Core")
        .def(nb::init<std::size_t, std::size_t, relive::Bytes, std::size_t, const std::vector<relive::LeafArgument>&,
                      const std::vector<relive::LeafArgument>&, std::vector<std::size_t>, bool, bool, nb::type_object,
                      const std::vector<std::tuple<nb::object, std::uint8_t, std::uint8_t>>&, bool>(),
             nb::arg("rows"), nb::arg("lanes"), nb::arg("records"), nb::arg("record_bytes"), nb::arg("observation"),
             nb::arg("action"), nb::arg("offsets"), nb::arg("observation_is_tree"), nb::arg("action_is_tree"),
             nb::arg("array_type"), nb::arg("dtypes"), nb::arg("fields_are_known"))
        .def("append", &Core::append, nb::arg("observation").none(), nb::arg("successor").none(),
             nb::arg("action").none(), nb::arg("reward").none(), nb::arg("done").none(), nb::arg("timeout").none(),
             nb::arg("gymnasium_words"), nb::arg("infos").none(), nb::arg("mask").none(), nb::arg("strict"),
             nb::arg("steps"))
        .def("add_finals", &Core::add_finals, nb::arg("slots"), nb::arg("arrays"))
        .def("interrupt", &Core::interrupt, nb::arg("lanes"))
        .def("clear", &Core::clear)
        .def("declare", &Core::declare, nb::arg("position"), nb::arg("count"))
        .def("compact", &Core::compact)
        .def("assign_successors", &Core::assign_successors, nb::arg("values"))
        .def("assign_observation", &Core::assign_observation, nb::arg("leaf"), nb::arg("values"))
        .def("sample", &Core::sample, nb::arg("size"), nb::arg("stream"), nb::arg("convert"), nb::arg("nones") = 0)
        .def("transitions_at", &Core::transitions_at, nb::arg("rows"), nb::arg("lanes"), nb::arg("convert"))
        .def("transitions_of", &Core::transitions_of, nb::arg("handles"), nb::arg("convert"))
        .def("held_handles", &Core::held_handles, nb::arg("handles"))
        .def("all_handles", &Core::all_handles)
        .def("set_field", &Core::set_field, nb::arg("handles"), nb::arg("field"), nb::arg("values"))
        .def("successors", &Core::successors, nb::arg("leaf"), nb::arg("rows"), nb::arg("lanes"), nb::arg("out"))
        .def("lanes", &Core::lanes)
        .def("common", &Core::common)
        .def("held", &Core::held)
        .def("finals", &Core::finals)
        .def("arena_bytes", &Core::arena_bytes)
        .def("used", &Core::used)
        .def("snapshot", &Core::snapshot, nb::arg("rows"), nb::arg("high_water"), nb::arg("records"), nb::arg("large"),
             nb::arg("finals"))
        .def("restore", &Core::restore, nb::arg("heads"), nb::arg("counts"), nb::arg("high_water"));
    nb::class_<relive::Usual>(m, "Usual")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object>(), nb::arg("core"), nb::arg("stream"),
             nb::arg("convert"), nb::arg("kind"))
        .def("add", &relive::Usual::add, nb::arg("observation").none(), nb::arg("successor").none(),
             nb::arg("action").none(), nb::arg("reward").none(), nb::arg("done").none(), nb::arg("infos").none(),
             nb::arg("strict"))
        .def("sample", &relive::Usual::sample, nb::arg("batch_size"));
    m.def("numpy_fields_match", &relive::numpy_fields_match, nb::arg("array"), nb::arg("address"), nb::arg("shape"),
          nb::arg("strides"), nb::arg("dtype"));
    m.def("draw_below", &relive::draw, nb::arg("bound"), nb::arg("size"), nb::arg("stream"));
    m.def("gae", &relive::compute_gae, nb::arg("rewards"), nb::arg("values"), nb::arg("episode_starts"),
          nb::arg("last_values"), nb::arg("dones"), nb::arg("advantages"), nb::arg("returns"), nb::arg("steps"),
          nb::arg("gamma"), nb::arg("gamma_lambda"), nb::arg("wide_delta"), nb::arg("wide_sum"));
    relive::bind_trees(m);
}
