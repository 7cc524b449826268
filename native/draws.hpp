// Draws that ask for more than uniform transitions, as Python sees them: a sampler chooses steps of the rule that a view
// has, the view is gathered from them, all under one lock.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "choice.hpp"
#include "core.hpp"
#include "episodes.hpp"
#include "priorities.hpp"
#include "view.hpp"

namespace relive {

namespace nb = nanobind;

// The fields of a view's batch, each an array (batch, *shape) or (batch, time, *shape).
class ViewFields {
  public:
    ViewFields(Core& core, const View& view, bool weighs) : time_(view.time) {
        const auto add_all = [&](const std::vector<LeafSpec>& specs) {
            for (const LeafSpec& spec : specs) add(spec.dtype, spec.shape, spec.bytes);
        };
        const Layout& layout = core.timeline().layout();
        const DLType f32{dl_float, 32, 1};
        const DLType flag{dl_bool, 8, 1};
        const DLType i64{0, 64, 1};
        add_all(core.observation_specs());
        add_all(core.action_specs());
        add_all(core.observation_specs());
        add(f32, {1}, sizeof(float));
        add(f32, {static_cast<std::int64_t>(layout.reward_width())}, layout.reward.bytes);
        if (view.has_discounts()) add(f32, {1}, sizeof(float));
        add_all(core.extra_specs());
        if (!view.windows.empty()) add(i64, {}, sizeof(std::int64_t));
        for (const PartOf& which : view.windows) {
            auto [dtype, shape] = described(core, which);
            shape.insert(shape.begin(), view.n_steps);
            add(dtype, shape, static_cast<std::size_t>(view.n_steps) * ViewGather::bytes_of(layout, which));
        }
        if (view.time > 0) {
            for (int flags = 0; flags < 3; ++flags) add(flag, {}, 1);
        }
        time_ = 0;  // what follows is one for a row of the batch
        if (view.names_steps) add(i64, {}, sizeof(std::int64_t));
        if (weighs) add(f32, {1}, sizeof(float));
        if (view.goals) add(flag, {}, 1);
    }

    const std::vector<Field>& fields() const noexcept { return fields_; }
    std::size_t bytes() const noexcept {
        std::size_t sum = 0;
        for (const Field& field : fields_) sum += field.bytes;
        return sum;
    }

  private:
    void add(const DLType& dtype, std::vector<std::int64_t> shape, std::size_t bytes) {
        if (time_ > 0) {
            shape.insert(shape.begin(), time_);
            bytes *= static_cast<std::size_t>(time_);
        }
        fields_.push_back({dtype, std::move(shape), bytes});
    }

    static std::pair<DLType, std::vector<std::int64_t>> described(Core& core, const PartOf& which) {
        const auto of = [&](const std::vector<LeafSpec>& specs) -> std::pair<DLType, std::vector<std::int64_t>> {
            return {specs.at(which.leaf).dtype, specs.at(which.leaf).shape};
        };
        const DLType f32{dl_float, 32, 1};
        switch (which.part) {
            case Part::observation:
            case Part::successor:
                return of(core.observation_specs());
            case Part::action:
                return of(core.action_specs());
            case Part::extra:
                return of(core.extra_specs());
            case Part::reward:
                return {f32, {static_cast<std::int64_t>(core.timeline().layout().reward_width())}};
            default:
                return {f32, {}};
        }
    }

    std::int64_t time_;
    std::vector<Field> fields_;
};

class Draws {
  public:
    using Float64s = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    explicit Draws(nb::object core)
        : core_object_(std::move(core)), core_(nb::cast<Core&>(core_object_)), timeline_(core_.timeline()) {
        locked(timeline_.mutex, long_work + 1, [&] { episodes_ = std::make_unique<Episodes>(timeline_); });
    }
    ~Draws() {
        locked(timeline_.mutex, 0, [&] {
            priorities_.reset();
            episodes_.reset();
        });
    }
    Draws(const Draws&) = delete;
    Draws& operator=(const Draws&) = delete;

    // By value from now on.
    void prioritize(int kind, double alpha, double eps, double initial, bool max_ever, bool over_buffer,
                    std::uint32_t most_uses) {
        Priorities::Options options{
            static_cast<Priorities::Kind>(kind), alpha, eps, initial, max_ever, over_buffer, most_uses};
        locked(timeline_.mutex, long_work + 1,
               [&] { priorities_ = std::make_unique<Priorities>(timeline_, *episodes_, options); });
    }
    // Other options of the same kind from now on; see Priorities.
    bool reconfigure(double alpha, double eps, double initial, bool max_ever, bool over_buffer) {
        return locked(timeline_.mutex, long_work + 1, [&] {
            require(priorities_ != nullptr, "no priorities are kept");
            Priorities::Options options = priorities_->options();
            options.alpha = alpha;
            options.eps = eps;
            options.initial = initial;
            options.max_ever = max_ever;
            options.over_buffer = over_buffer;
            return priorities_->reconfigure(options);
        });
    }
    // Every step once in an epoch from now on.
    void without_replacement() { once_ = true; }

    // A batch: (0, fields), or a reason and None: 1 no step is eligible, 2 too few are. With `by` 0 the sampler chooses;
    // 1 uniform starts whatever the sampler is, 2 uniform episodes, 3 what is left of the running epoch.
    std::pair<int, nb::object> draw(nb::handle batch_size, Stream& stream, const View& view, double beta, int by,
                                    nb::handle convert) {
        const std::size_t size = read_batch_size(batch_size);
        const bool by_value = priorities_ && !once_ && by == 0;
        const bool weighs = by_value && priorities_->options().kind != Priorities::Kind::alike;
        const Stream::Locked locked_stream(stream);
        BitGenerator& bits = locked_stream.bits();
        return gather(size, view, weighs, convert, &bits, [&](float* weights) {
            if (by_value) return priorities_->draw(view.rule, beta, bits, size, drawn_, weights);
            const bool epoch = once_ && (by == 0 || by == 3);
            if (!epoch && by != 2 && view.rule.is_all()) return draw_held(bits, size);
            const Starts& starts = episodes_->starts(view.rule);
            if (epoch) {
                const auto may = [&](const Drawn& step) { return !priorities_ || priorities_->may_draw(step); };
                const Choice chosen = epochs_.draw(timeline_, starts, may, bits, size, by == 0, drawn_);
                for (std::size_t i = 0; priorities_ && i < drawn_.size(); ++i) priorities_->used(drawn_[i]);
                return chosen;
            }
            return by == 2 ? draw_by_episode(timeline_, starts, bits, size, drawn_)
                           : draw_starts(timeline_, starts, bits, size, drawn_);
        });
    }

    // The same view of given steps; None where one is not held any more. Goals are not replaced.
    nb::object at(const Indices& handles, const View& view, nb::handle convert) {
        View plain = view;
        plain.goals.reset();
        auto [reason, fields] = gather(handles.size(), plain, false, convert, nullptr, [&](float*) {
            std::vector<Drawn> steps;
            if (!find_all(handles, steps)) return Choice::none_eligible;
            drawn_ = std::move(steps);
            return Choice::drawn;
        });
        return fields;
    }

    std::int64_t count(const StartRule& rule) {
        return locked(timeline_.mutex, 0, [&]() -> std::int64_t {
            if (priorities_ && priorities_->options().most_uses > 0) return priorities_->count(rule);
            if (rule.is_all()) return timeline_.held();
            const Starts& starts = episodes_->starts(rule);
            std::int64_t sum = 0;
            for (std::size_t lane = 0; lane < timeline_.lanes().size(); ++lane) sum += starts.count(lane);
            return sum;
        });
    }

    // The largest priority that may be given to every step; see Priorities.
    static double largest_priority(int kind, double alpha, double eps, std::size_t slots) {
        return Priorities::largest_priority({.kind = static_cast<Priorities::Kind>(kind), .alpha = alpha, .eps = eps},
                                            slots);
    }

    // New priorities; how many handles were stale, or -1 - i where priority i is negative, not finite or above the largest
    // one: then nothing was changed.
    std::int64_t set_priorities(const Indices& handles, const Float64s& priorities) {
        require(handles.size() == priorities.size(), "as many priorities as handles");
        return locked(timeline_.mutex, handles.size() * 64, [&]() -> std::int64_t {
            require(priorities_ != nullptr, "no priorities are kept");
            const double largest = priorities_->largest_priority();
            for (std::size_t i = 0; i < priorities.size(); ++i) {
                const double p = priorities.data()[i];
                if (!(p >= 0.0 && p <= largest)) return -1 - static_cast<std::int64_t>(i);
            }
            std::vector<Drawn> steps;
            std::vector<double> values;
            steps.reserve(handles.size());
            values.reserve(handles.size());
            Pick pick;
            for (std::size_t i = 0; i < handles.size(); ++i) {
                if (!core_.find(handles.data()[i], pick)) continue;
                steps.push_back(drawn_at(handles.data()[i], pick));
                values.push_back(priorities.data()[i]);
            }
            priorities_->set(steps, values);
            return static_cast<std::int64_t>(handles.size() - steps.size());
        });
    }

    // (masses, uses) of held steps, or with `kept` what is kept of them in place of masses; None where one is not held
    // any more.
    nb::object values(const Indices& handles, bool kept) {
        std::vector<double> values;
        std::vector<std::int64_t> uses;
        const bool found = locked(timeline_.mutex, handles.size() * 64, [&] {
            require(priorities_ != nullptr, "no priorities are kept");
            std::vector<Drawn> steps;
            if (!find_all(handles, steps)) return false;
            for (const Drawn& step : steps) {
                values.push_back(kept ? priorities_->value(step) : priorities_->mass(step));
                uses.push_back(priorities_->uses(step));
            }
            return true;
        });
        if (!found) return nb::none();
        return nb::make_tuple(to_numpy(std::move(values)), to_numpy(std::move(uses)));
    }
    double largest_given() {
        return locked(timeline_.mutex, 0, [&] { return priorities_ ? priorities_->largest_given() : 0.0; });
    }
    bool keeps_priorities() {
        return locked(timeline_.mutex, 0, [&] { return priorities_ && priorities_->keeps_priorities(); });
    }
    void restore_values(const Indices& handles, const Float64s& values, const Indices& uses, double largest_given,
                        bool are_priorities) {
        require(handles.size() == values.size() && handles.size() == uses.size(), "as many values and uses as handles");
        std::vector<std::uint32_t> narrow;
        for (std::size_t i = 0; i < uses.size(); ++i) narrow.push_back(static_cast<std::uint32_t>(uses.data()[i]));
        locked(timeline_.mutex, long_work + 1, [&] {
            require(priorities_ != nullptr, "no priorities are kept");
            std::vector<Drawn> steps;
            require(find_all(handles, steps), "a handle that is not held");
            if (are_priorities) priorities_->keep_priorities();
            priorities_->restore(steps, values.data(), narrow.data(), largest_given);
        });
    }

    // Running epochs: (length, stride, padded, crossing, finished_only, looks_back, steps at its start, handles that are
    // left, the next one last).
    using EpochState =
        std::tuple<std::int64_t, std::int64_t, bool, bool, bool, bool, std::int64_t, std::vector<std::int64_t>>;
    std::vector<EpochState> epochs() {
        return locked(timeline_.mutex, long_work + 1, [&] {
            std::vector<EpochState> out;
            for (const Epochs::Epoch& epoch : epochs_.epochs()) {
                const StartRule& r = epoch.rule;
                out.emplace_back(r.length, r.stride, r.padded, r.crossing, r.finished_only, r.looks_back,
                                 epoch.began_with, epoch.rest);
            }
            return out;
        });
    }
    void restore_epochs(const std::vector<EpochState>& epochs) {
        locked(timeline_.mutex, long_work + 1, [&] {
            epochs_.clear();
            for (const auto& [length, stride, padded, crossing, finished, looks_back, began_with, rest] : epochs)
                epochs_.restore({StartRule{length, stride, padded, crossing, finished, looks_back}, began_with, rest});
        });
    }
    void clear_epochs() {
        locked(timeline_.mutex, 0, [&] { epochs_.clear(); });
    }

    // All pieces of episodes that are held, lane by lane, oldest first: (lane, number of the first held step, steps,
    // whether it begins there, whether it has ended), each an array.
    std::vector<nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>> pieces() {
        std::vector<std::vector<std::int64_t>> columns(5);
        locked(timeline_.mutex, long_work + 1, [&] {
            for (std::size_t lane = 0; lane < timeline_.lanes().size(); ++lane) {
                for (std::size_t i = 0; i < episodes_->begins(lane).size(); ++i) {
                    const std::int64_t begin = episodes_->begins(lane)[i];
                    const std::int64_t from = std::max(begin, timeline_.oldest(lane));
                    const std::int64_t steps = episodes_->end(lane, i) - from;
                    if (steps <= 0) continue;
                    columns[0].push_back(static_cast<std::int64_t>(lane));
                    columns[1].push_back(from);
                    columns[2].push_back(steps);
                    columns[3].push_back(from == begin);
                    columns[4].push_back(episodes_->is_finished(lane, i));
                }
            }
        });
        std::vector<nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>> out;
        for (auto& column : columns) out.push_back(to_numpy(std::move(column)));
        return out;
    }

  private:
    static Drawn drawn_at(std::int64_t handle, const Pick& pick, std::int64_t lanes) noexcept {
        return {pick.lane, pick.row, lanes == 1 ? handle : handle / lanes};
    }
    Drawn drawn_at(std::int64_t handle, const Pick& pick) const noexcept {
        return drawn_at(handle, pick, static_cast<std::int64_t>(timeline_.lanes().size()));
    }
    bool find_all(const Indices& handles, std::vector<Drawn>& steps) const {
        for (std::size_t i = 0; i < handles.size(); ++i) {
            Pick pick;
            if (!core_.find(handles.data()[i], pick)) return false;
            steps.push_back(drawn_at(handles.data()[i], pick));
        }
        return true;
    }

    Choice draw_held(BitGenerator& bits, std::size_t size) {
        if (timeline_.held() == 0) return Choice::none_eligible;
        draw_uniform(timeline_, bits, size, scratch_, picks_);
        drawn_.clear();
        for (const Pick& pick : picks_) {
            drawn_.push_back({pick.lane, pick.row, timeline_.number_at(pick.lane, pick.row)});
        }
        return Choice::drawn;
    }

    template <class Choose>
    std::pair<int, nb::object> gather(std::size_t size, const View& view, bool weighs, nb::handle convert,
                                      BitGenerator* bits, const Choose& choose) {
        check(view);
        const ViewFields fields(core_, view, weighs);
        BatchMemory memory(core_.arena(), fields.fields(), size);
        const Layout& layout = timeline_.layout();
        std::size_t field = 0;
        ViewBatch out;
        const auto take_all = [&](std::vector<std::byte*>& to, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) to.push_back(memory.data(field++));
        };
        take_all(out.base.observation, layout.observation.size());
        take_all(out.base.action, layout.action.size());
        take_all(out.base.successor, layout.observation.size());
        out.base.done = memory.data(field++);
        out.base.reward = memory.data(field++);
        if (view.has_discounts()) out.discount = memory.data(field++);
        take_all(out.extra, layout.extra.size());
        if (!view.windows.empty()) out.lengths = memory.data(field++);
        take_all(out.windows, view.windows.size());
        if (view.time > 0) {
            out.is_valid = memory.data(field++);
            out.is_first = memory.data(field++);
            out.in_burn_in = memory.data(field++);
        }
        std::byte* const handles = view.names_steps ? memory.data(field++) : nullptr;
        auto* const weights = weighs ? reinterpret_cast<float*>(memory.data(field++)) : nullptr;
        std::byte* const relabelled = view.goals ? memory.data(field++) : nullptr;
        std::size_t count = 0;  // fewer than asked for at the end of an epoch
        const Choice choice = locked(timeline_.mutex, size * fields.bytes(), [&] {
            const Choice chosen = choose(weights);
            if (chosen != Choice::drawn) return chosen;
            count = drawn_.size();
            if (view.time > 0) {
                expand(timeline_, *episodes_, view, drawn_, places_);
            } else {
                places_.clear();
                for (const Drawn& step : drawn_) places_.push_back({step, true, false});
            }
            ViewGather gathering(timeline_, view);
            gathering.gather(places_, out);
            const auto lanes = static_cast<std::int64_t>(layout.lanes);
            for (std::size_t i = 0; handles && i < drawn_.size(); ++i) {
                store(handles + i * sizeof(std::int64_t),
                      drawn_[i].number * lanes + static_cast<std::int64_t>(drawn_[i].lane));
            }
            if (view.goals) relabel(view, gathering, out, *bits, relabelled, weighs);
            return chosen;
        });
        if (choice != Choice::drawn) return {static_cast<int>(choice), nb::none()};
        memory.shrink(count);
        return {0, memory.hand_out(convert)};
    }

    // Draws by value come in the order of the steps, so the rows that get a goal are drawn too; of other draws the first
    // rows are as good as any.
    void relabel(const View& view, const ViewGather& gathering, const ViewBatch& out, BitGenerator& bits,
                 std::byte* flags, bool is_ordered) {
        const std::size_t size = drawn_.size();
        const GoalRule& rule = *view.goals;
        const Starts& starts = episodes_->starts(StartRule{1, 1, true, false, view.rule.finished_only});
        std::vector<std::int64_t> before;
        if (rule.strategy == GoalStrategy::random) {
            before =
                detail::sums_before(timeline_.lanes().size(), [&](std::size_t lane) { return starts.count(lane); });
        }
        std::vector<std::size_t> order(size);
        for (std::size_t i = 0; i < size; ++i) order[i] = i;
        std::memset(flags, 0, size);
        goals_.clear();
        const std::size_t wanted = size * rule.sampled / (rule.sampled + 1);
        const auto time = static_cast<std::size_t>(std::max<std::int64_t>(view.time, 1));
        for (std::size_t k = 0; k < wanted; ++k) {
            if (is_ordered) {
                const auto j =
                    k + static_cast<std::size_t>(detail::draw_one(bits, static_cast<std::int64_t>(size - k)));
                std::swap(order[k], order[j]);
            }
            const std::size_t i = order[k];
            store(flags + i, std::uint8_t{1});
            goals_.push_back(choose_goal(timeline_, *episodes_, starts, rule, before, drawn_[i], bits));
            gathering.prefetch_goal(goals_.back());
        }
        for (std::size_t k = 0; k < wanted; ++k) {
            for (std::size_t t = 0; t < time; ++t) {
                const std::size_t place = order[k] * time + t;
                if (places_[place].is_valid) gathering.relabel(place, goals_[k], out);
            }
        }
    }

    void check(const View& view) const {
        const Layout& layout = timeline_.layout();
        require(view.n_steps >= 1 && view.time >= 0 && view.rule.length >= 1 && view.rule.stride >= 1,
                "steps, time, length and stride are positive");
        require(view.time == 0 || view.rule.length == view.time, "a sequence is as long as its rule says");
        for (const PartOf& which : view.windows) {
            const std::size_t leaves = which.part == Part::action  ? layout.action.size()
                                       : which.part == Part::extra ? layout.extra.size()
                                                                   : layout.observation.size();
            require(which.leaf < leaves, "no such leaf");
        }
        if (view.own_gamma) {
            require(*view.own_gamma < core_.extra_specs().size(), "no such field");
            const LeafSpec& field = core_.extra_specs()[*view.own_gamma];
            require(field.dtype.code == dl_float && (field.bytes == sizeof(float) || field.bytes == sizeof(double)) &&
                        field.bytes * 8 == field.dtype.bits,
                    "discounts are single numbers of float32 or float64");
        }
        if (!view.goals) return;
        require(view.goals->achieved < layout.observation.size() && view.goals->desired < layout.observation.size() &&
                    layout.observation[view.goals->achieved].bytes == layout.observation[view.goals->desired].bytes,
                "goals are observation leaves of the same size");
    }

    nb::object core_object_;
    Core& core_;
    Timeline& timeline_;
    std::unique_ptr<Episodes> episodes_;
    std::unique_ptr<Priorities> priorities_;
    Epochs epochs_;
    bool once_ = false;
    // Scratch, under the timeline's mutex.
    std::vector<Drawn> drawn_;
    std::vector<Drawn> goals_;
    std::vector<Place> places_;
    std::vector<std::int64_t> scratch_;
    std::vector<Pick> picks_;
};

// Draws of transitions over a space of one array, with all that does not change bound beforehand; see Usual.
class UsualDraw {
  public:
    // `kind`: the named tuple; with `beta`, which is asked at every draw, one that takes attributes beside its fields.
    UsualDraw(nb::object draws, nb::object stream, nb::object view, nb::object convert, nb::object kind,
              nb::object beta)
        : draws_(std::move(draws)),
          stream_(std::move(stream)),
          view_(std::move(view)),
          convert_(std::move(convert)),
          kind_(std::move(kind)),
          beta_(std::move(beta)),
          new_tuple_(nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type)).attr("__new__")),
          to_draws_(nb::cast<Draws&>(draws_)),
          to_stream_(nb::cast<Stream&>(stream_)),
          to_view_(nb::cast<const View&>(view_)) {
        require(to_view_.time == 0 && to_view_.windows.empty() && !to_view_.goals,
                "a usual draw is one of transitions");
        require(to_view_.names_steps == !beta_.is_none(), "weights come with handles");
    }

    // None where nothing may be drawn.
    nb::object sample(nb::handle batch_size) {
        const bool weighs = !beta_.is_none();
        const double beta = weighs ? nb::cast<double>(beta_()) : 0.0;
        const auto [reason, drawn] = to_draws_.draw(batch_size, to_stream_, to_view_, beta, 0, convert_);
        if (reason != 0) return nb::none();
        const auto fields = nb::borrow<nb::tuple>(drawn);
        const bool has_discounts = to_view_.has_discounts();
        nb::object six = nb::make_tuple(fields[0], fields[1], fields[2], fields[3], fields[4],
                                        has_discounts ? nb::object(fields[5]) : nb::none());
        nb::object batch = new_tuple_(kind_, six);
        if (weighs) {
            const std::size_t next = has_discounts ? 6 : 5;
            batch.attr("handles") = fields[next].attr("numpy")();
            batch.attr("weights") = fields[next + 1];
            batch.attr("extras") = nb::dict();
            batch.attr("relabelled") = nb::none();
        }
        return batch;
    }

  private:
    nb::object draws_;
    nb::object stream_;
    nb::object view_;
    nb::object convert_;
    nb::object kind_;
    nb::object beta_;
    nb::object new_tuple_;  // tuple.__new__
    Draws& to_draws_;
    Stream& to_stream_;
    const View& to_view_;
};

}  // namespace relive
