// Which steps are drawn, where that does not only depend on which are held: by priority (proportional or by rank), or
// because a step may be drawn so many times only.
//
// Every held step has a value: its mass (Schaul et al. 2016, arXiv 1511.05952, eq. 1), its raw priority for draws by
// rank, 1 where all are alike. Masses lie where sums of them stay finite and none is lost: what would overflow is refused
// where it comes in (`largest_priority`), what is too small for a normal number becomes the smallest one. For every rule
// that draws ask for there is an index over the steps that it names now. The first index names all held steps, so the
// leaves of its tree are their values; where it has no tree or leaves steps out (those that were drawn often enough)
// values lie in an array. Where masses do not tell priorities (alpha is 0), or the exponent was changed, priorities
// themselves are kept from then on, and masses are made of them. Indices are brought up to date at the end of each call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "choice.hpp"
#include "draw.hpp"
#include "episodes.hpp"
#include "observer.hpp"
#include "ranked.hpp"
#include "sum_tree.hpp"
#include "timeline.hpp"

namespace relive {

class Priorities final : public Observer {
  public:
    enum class Kind { alike, proportional, ranked };
    struct Options {
        Kind kind = Kind::proportional;
        double alpha = 1.0;
        double eps = 0.0;
        double initial = std::numeric_limits<double>::quiet_NaN();  // priority of a new step; NaN: the largest
        bool max_ever = false;                                      // the largest ever given, else the largest held
        bool over_buffer = false;     // weights are scaled by the largest of the buffer, else of the batch
        std::uint32_t most_uses = 0;  // how often a step may be drawn; 0: without end
    };
    static constexpr std::size_t most_indices = 4;

    Priorities(Timeline& timeline, Episodes& episodes, const Options& options)
        : timeline_(timeline),
          episodes_(episodes),
          options_(options),
          slots_(timeline.layout().rows * timeline.layout().lanes),
          largest_priority_(largest_priority(options, slots_)) {
        if (options_.kind != Kind::proportional) {
            if (options_.kind == Kind::ranked || options_.most_uses > 0) values_ = zero_pages<double>(slots_);
        } else if (options_.most_uses > 0 || options_.alpha == 0.0) {
            keep_priorities();
        }
        known_ = zero_pages<std::uint8_t>(slots_);
        if (options_.most_uses > 0) uses_ = zero_pages<std::uint32_t>(slots_);
        if (options_.kind == Kind::ranked) ranks_.emplace(options_.alpha, slots_);
        indices_.emplace_back(StartRule{}, slots_, options_);
        renewed();
        settled();
        timeline_.attach(this);
    }
    ~Priorities() override { timeline_.detach(this); }
    Priorities(const Priorities&) = delete;
    Priorities& operator=(const Priorities&) = delete;

    const Options& options() const noexcept { return options_; }

    // The largest priority of which a buffer may be full: masses of half the largest number together leave room for the
    // rounding of powers and sums. Below 0 where there is none.
    static double largest_priority(const Options& options, std::size_t slots) noexcept {
        constexpr double largest = std::numeric_limits<double>::max();
        if (options.kind != Kind::proportional) return largest;
        const double of_mass = std::pow(largest / 2.0 / static_cast<double>(slots), 1.0 / options.alpha);
        return std::min(of_mass, largest / 2.0) - options.eps;
    }
    double largest_priority() const noexcept { return largest_priority_; }
    double largest_given() const noexcept { return largest_given_; }
    bool keeps_priorities() const noexcept { return given_.has_value(); }

    // Other options of the same kind, from the next draw and the next new step on. False where they leave no room for a
    // priority that is there, or for that of a new step; then nothing is other than before.
    bool reconfigure(Options options) {
        options.kind = options_.kind;
        options.most_uses = options_.most_uses;
        const bool is_ranked = options.kind == Kind::ranked;
        const bool is_other_power = options.alpha != options_.alpha || options.eps != options_.eps;
        const bool is_other_tree = !is_ranked && options.over_buffer != options_.over_buffer;
        const double largest_allowed = largest_priority(options, slots_);
        if (first_priority(options) > largest_allowed) return false;
        if (!is_ranked && (is_other_power || is_other_tree)) keep_priorities();
        if (given_ && (options.max_ever ? largest_given_ : given_->max()) > largest_allowed) return false;
        options_ = options;
        largest_priority_ = largest_allowed;
        if (is_ranked && is_other_power) ranks_.emplace(options_.alpha, slots_);
        if (is_ranked || !(is_other_power || is_other_tree)) return true;
        for (Index& index : indices_) {
            if (is_other_tree) index.sums.emplace(slots_, true, options_.over_buffer);
            refill(index);
        }
        return true;
    }

    // Each step's priority itself, from now on.
    void keep_priorities() {
        if (given_) return;
        SumTree given(slots_, true);
        if (!indices_.empty()) {
            const SumTree& masses = *indices_.front().sums;
            given.set_range(0, slots_,
                            [&](std::size_t slot) { return known_[slot] ? priority_of(masses.leaf(slot)) : 0.0; });
        }
        largest_given_ = largest_given_ > 0.0 ? priority_of(largest_given_) : none_given;
        given_.emplace(std::move(given));
    }

    // Steps of a rule by their values, and their importance weights where `weights` is given.
    Choice draw(const StartRule& rule, double beta, BitGenerator& bits, std::size_t size, std::vector<Drawn>& out,
                float* weights) {
        Index& index = index_of(rule);
        if (index.count == 0) return Choice::none_eligible;
        if (options_.most_uses > 0 && static_cast<std::int64_t>(size) > index.left) return Choice::too_few_left;
        out.resize(size);
        drawn_.resize(size);
        chances_.resize(size);
        if (options_.most_uses > 0) {
            draw_sparingly(index, bits, size);
        } else {
            draw_many(index, bits, size);
        }
        for (std::size_t i = 0; i < size; ++i) out[i] = step_of(drawn_[i]);
        if (weights) weigh(index, beta, size, weights);
        return Choice::drawn;
    }

    // Whether a step was drawn less often than it may be, and that it was drawn once more.
    bool may_draw(const Drawn& step) const noexcept { return !uses_ || draws_left(slot_of(step)) > 0; }
    void used(const Drawn& step) {
        if (uses_) use(slot_of(step));
    }

    // How many steps a rule names that may still be drawn, and how many draws are left where that is bounded.
    std::int64_t count(const StartRule& rule) { return index_of(rule).count; }

    // New priorities for held steps, none above `largest_priority`; of equal steps the last counts.
    void set(const std::vector<Drawn>& steps, const std::vector<double>& priorities) {
        // Slots lie far apart: ask for them all, then compute, then write.
        drawn_.resize(steps.size());
        masses_.resize(steps.size());
        for (std::size_t i = 0; i < steps.size(); ++i) {
            drawn_[i] = slot_of(steps[i]);
            if (has_the_values(indices_.front())) indices_.front().sums->fetch_path(drawn_[i]);
        }
        for (std::size_t i = 0; i < steps.size(); ++i) {
            masses_[i] = value_of(priorities[i]);
            largest_given_ = std::max(largest_given_, masses_[i]);
        }
        store_values(drawn_.data(), masses_.data(), masses_.size());
        for (Index& index : indices_) {
            if (has_the_values(index)) continue;
            for (const std::size_t slot : drawn_) {
                if (index.has[slot]) index.pending.push_back(slot);
            }
            flush(index);
        }
    }

    // What a step is drawn by; and what is kept of it, which `restore` takes.
    double mass(const Drawn& step) const noexcept { return mass_at(slot_of(step)); }
    double value(const Drawn& step) const noexcept { return value_at(slot_of(step)); }
    std::uint32_t uses(const Drawn& step) const noexcept { return uses_ ? uses_[slot_of(step)] : 0; }

    // Values and uses as another object had them, for held steps.
    void restore(const std::vector<Drawn>& steps, const double* values, const std::uint32_t* uses,
                 double largest_given) {
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const std::size_t slot = slot_of(steps[i]);
            store_values(&slot, &values[i], 1);
            if (uses_) uses_[slot] = uses[i];
        }
        largest_given_ = largest_given;
        for (Index& index : indices_) refill(index);
    }

    // Observer ----------------------------------------------------------------------------------------------------

    void appended(std::size_t lane, std::int64_t number) override {
        new_.push_back({lane, timeline_.row_of(number), number});
    }
    void cut(std::size_t lane) override {
        const Lane& l = timeline_.lanes()[lane];
        if (l.count > 0) ended_.push_back({lane, timeline_.row_of(l.head - 1), l.head - 1});
    }
    void emptied(std::size_t lane, std::int64_t) override {
        const std::size_t rows = timeline_.layout().rows;
        std::erase_if(new_, [&](const Drawn& step) { return step.lane == lane; });
        for (std::size_t slot = lane * rows; slot < (lane + 1) * rows; ++slot) {
            if (known_[slot]) forget(slot);
        }
    }
    void renewed() override {
        const Layout& layout = timeline_.layout();
        for (std::size_t lane = 0; lane < layout.lanes; ++lane) {
            for (std::size_t row = 0; row < layout.rows; ++row) {
                const Drawn step = step_of(lane * layout.rows + row);
                const bool is_held = timeline_.holds(lane, step.number);
                if (is_held && !known_[slot_of(step)]) new_.push_back(step);
                if (!is_held && known_[slot_of(step)]) forget(slot_of(step));
            }
        }
        refill_ = true;
    }

    void settled() override {
        if (!new_.empty()) give_initial_values();
        if (refill_) {
            for (Index& index : indices_) refill(index);
        } else {
            for (Index& index : indices_) {
                for (const Drawn& step : new_) {
                    came(index, step);
                    went(index, step);
                }
                for (const Drawn& step : ended_) visit_finished(index, step);
                flush(index);
            }
        }
        refill_ = false;
        new_.clear();
        ended_.clear();
    }

  private:
    struct Index {
        Index(const StartRule& r, std::size_t slots, const Options& options)
            : rule(r), has(zero_pages<std::uint8_t>(slots)) {
            if (options.kind == Kind::ranked) {
                ranked.emplace(slots);
            } else {
                sums.emplace(slots, true, options.over_buffer);
            }
        }
        StartRule rule;
        ZeroPages<std::uint8_t> has;  // the steps that can be drawn
        std::int64_t count = 0;       // of them
        std::int64_t left = 0;        // the draws that are left of them
        std::optional<SumTree> sums;
        std::optional<Ranked> ranked;
        std::vector<std::size_t> pending;  // slots whose value in `sums` or `ranked` is to be set
    };

    std::size_t slot_of(const Drawn& step) const noexcept { return step.lane * timeline_.layout().rows + step.row; }
    Drawn step_of(std::size_t slot) const noexcept {
        const std::size_t rows = timeline_.layout().rows;
        const std::size_t lane = slot < rows ? 0 : slot / rows;
        const std::size_t row = slot - lane * rows;
        return {lane, row, timeline_.number_at(lane, row)};
    }

    // What is kept of a priority, and the mass of what is kept.
    double value_of(double priority) const noexcept { return given_ ? priority : mass_of(priority); }
    double mass_of(double priority) const noexcept {
        if (options_.kind != Kind::proportional) return priority;
        const double mass = std::pow(priority + options_.eps, options_.alpha);
        return mass < smallest && priority + options_.eps > 0.0 ? smallest : mass;
    }
    double priority_of(double mass) const noexcept {
        return std::max(std::pow(mass, 1.0 / options_.alpha) - options_.eps, 0.0);
    }
    // Of a new step, where no other says it.
    static double first_priority(const Options& options) noexcept {
        return std::isnan(options.initial) ? 1.0 : options.initial;
    }
    // Never 0, whatever the whole is: weights are quotients of chances.
    static double chance(double mass, double total) noexcept { return std::max(mass / total, smallest); }

    bool has_the_values(const Index& index) const noexcept {
        return !values_ && !given_ && &index == &indices_.front();
    }
    double value_at(std::size_t slot) const noexcept {
        if (given_) return given_->leaf(slot);
        return values_ ? values_[slot] : indices_.front().sums->leaf(slot);
    }
    double mass_at(std::size_t slot) const noexcept { return given_ ? mass_of(given_->leaf(slot)) : value_at(slot); }
    void store_values(const std::size_t* slots, const double* values, std::size_t size) {
        if (given_) {
            given_->set_many(slots, values, size);
        } else if (values_) {
            for (std::size_t i = 0; i < size; ++i) values_[slots[i]] = values[i];
        } else {
            indices_.front().sums->set_many(slots, values, size);
        }
    }
    // What a step counts in an index; where that has the values, it is a step that was not in it before.
    double mass_in(const Index& index, std::size_t slot) const noexcept {
        if (!index.has[slot]) return 0.0;
        return has_the_values(index) ? newest_ : mass_at(slot);
    }

    void forget(std::size_t slot) {
        if (options_.kind != Kind::alike && !given_ && value_at(slot) >= largest_held()) largest_is_gone_ = true;
        for (Index& index : indices_) take_out(index, slot);
        if (given_) given_->set(slot, 0.0);
        if (values_) values_[slot] = 0.0;
        known_[slot] = 0;
        --valued_;
        if (uses_) uses_[slot] = 0;
    }

    // All new steps of one call get the same, and the maximum is that of the steps that are still held.
    void give_initial_values() {
        for (const Drawn& step : new_) {
            if (known_[slot_of(step)]) forget(slot_of(step));
        }
        double value = 1.0;
        if (options_.kind != Kind::alike) {
            value = std::isnan(options_.initial) ? largest_value() : value_of(options_.initial);
            largest_given_ = std::max(largest_given_, value);
        }
        newest_ = value;
        for (const Drawn& step : new_) {
            if (given_) given_->set(slot_of(step), value);
            if (values_) values_[slot_of(step)] = value;
            valued_ += known_[slot_of(step)] ? 0 : 1;
            known_[slot_of(step)] = 1;
        }
    }

    // That of the largest mass, or of a priority of 1 where there is none above 0.
    double largest_value() {
        double value = largest_given_;
        if (!options_.max_ever) {
            if (largest_is_gone_) flush(indices_.front());
            largest_is_gone_ = false;
            value = !given_ ? largest_held() : valued_ > 0 ? given_->max() : none_given;
        }
        const bool has_mass = given_ ? value >= 0.0 && mass_of(value) > 0.0 : value > 0.0;
        return has_mass ? value : value_of(1.0);
    }

    double largest_held() const noexcept {
        const Index& held = indices_.front();
        return held.ranked ? held.ranked->max_priority() : held.sums->max();
    }

    // Puts in what a new step makes drawable: itself, the start of a window that it completes, its whole episode.
    void came(Index& index, const Drawn& step) {
        consider(index, step);
        if (index.rule.length > 1 && !index.rule.padded && !index.rule.looks_back)
            consider_number(index, step.lane, step.number - index.rule.length + 1);
        if (timeline_.is_end(step.lane, step.row)) visit_finished(index, step);
    }
    // Takes out what a new step makes undrawable: it overwrites one that the window of another looks back to.
    void went(Index& index, const Drawn& step) {
        if (index.rule.needs_before() == 0) return;
        const auto rows = static_cast<std::int64_t>(timeline_.layout().rows);
        const std::int64_t number = step.number - rows + index.rule.needs_before();
        if (!timeline_.holds(step.lane, number)) return;
        const Drawn other{step.lane, timeline_.row_of(number), number};
        if (!is_eligible(index, other)) take_out(index, slot_of(other));
    }
    void visit_finished(Index& index, const Drawn& last) {
        if (!index.rule.finished_only) return;
        const Starts& starts = episodes_.starts(index.rule);
        const std::size_t episode = episodes_.find(last.lane, last.number);
        starts.visit(last.lane, episodes_.begins(last.lane)[episode], last.number + 1,
                     [&](std::int64_t number) { consider_number(index, last.lane, number); });
    }
    void consider_number(Index& index, std::size_t lane, std::int64_t number) {
        if (timeline_.holds(lane, number)) consider(index, {lane, timeline_.row_of(number), number});
    }
    void consider(Index& index, const Drawn& step) {
        const std::size_t slot = slot_of(step);
        if (index.has[slot] || !is_eligible(index, step)) return;
        index.has[slot] = 1;
        ++index.count;
        index.left += draws_left(slot);
        index.pending.push_back(slot);
    }
    void take_out(Index& index, std::size_t slot) {
        if (!index.has[slot]) return;
        index.has[slot] = 0;
        --index.count;
        index.left -= draws_left(slot);
        index.pending.push_back(slot);
    }
    bool is_eligible(const Index& index, const Drawn& step) const {
        if (!timeline_.holds(step.lane, step.number) || (uses_ && draws_left(slot_of(step)) == 0)) return false;
        return index.rule.is_all() || episodes_.starts(index.rule).is_start(step.lane, step.number);
    }
    std::int64_t draws_left(std::size_t slot) const noexcept {
        return uses_ ? static_cast<std::int64_t>(options_.most_uses) - static_cast<std::int64_t>(uses_[slot]) : 0;
    }

    // Brings the tree or the ranking in step with `has` and the values.
    void flush(Index& index) {
        if (index.pending.empty()) return;
        if (index.ranked) {
            for (const std::size_t slot : index.pending) {
                const bool was = index.ranked->contains(slot);
                if (was && (!index.has[slot] || index.ranked->number(slot) != step_of(slot).number))
                    index.ranked->erase(slot);
                if (!index.has[slot]) continue;
                if (index.ranked->contains(slot)) {
                    index.ranked->update(slot, values_[slot]);
                } else {
                    index.ranked->insert(slot, values_[slot], step_of(slot).number);
                }
            }
        } else {
            masses_.resize(index.pending.size());
            for (std::size_t i = 0; i < masses_.size(); ++i) {
                masses_[i] = mass_in(index, index.pending[i]);
            }
            index.sums->set_many(index.pending.data(), masses_.data(), masses_.size());
        }
        index.pending.clear();
    }

    void refill(Index& index) {
        index.pending.clear();
        index.count = 0;
        index.left = 0;
        if (index.ranked) index.ranked->clear();
        const bool has_values = has_the_values(index);
        const auto refilled = [&](std::size_t slot) {
            const Drawn step = step_of(slot);
            const bool was_in = index.has[slot] != 0;
            const bool in = is_eligible(index, step);
            if (was_in != in) index.has[slot] = in;
            if (!in) return 0.0;
            ++index.count;
            index.left += draws_left(slot);
            if (index.ranked) index.ranked->insert(slot, values_[slot], step.number);
            return has_values && !was_in ? newest_ : mass_at(slot);
        };
        if (index.sums) {
            index.sums->set_range(0, slots_, refilled);
        } else {
            for (std::size_t slot = 0; slot < slots_; ++slot) refilled(slot);
        }
    }

    // The index of a rule, made at its first use. The first one, of all steps, stays.
    Index& index_of(const StartRule& rule) {
        const StartRule wanted = rule.is_all() ? StartRule{} : rule;
        if (!wanted.is_all()) episodes_.starts(wanted);  // keeps its books from being forgotten
        for (auto it = indices_.begin(); it != indices_.end(); ++it) {
            if (!(it->rule == wanted)) continue;
            if (it != indices_.begin()) indices_.splice(std::next(indices_.begin()), indices_, it);
            return *it;
        }
        const auto made = indices_.emplace(std::next(indices_.begin()), wanted, slots_, options_);
        refill(*made);
        if (indices_.size() > most_indices) indices_.pop_back();
        return *made;
    }

    static constexpr double none_given = -1.0;  // in the place of a priority
    static constexpr double smallest = std::numeric_limits<double>::min();

    static double uniform(BitGenerator& bits) noexcept { return bits.next_double(bits.state); }

    // One draw from each of `size` equal parts of the whole.
    void draw_many(Index& index, BitGenerator& bits, std::size_t size) {
        points_.resize(size);
        for (std::size_t i = 0; i < size; ++i)
            points_[i] = (static_cast<double>(i) + uniform(bits)) / static_cast<double>(size);
        if (index.ranked) {
            const auto n = static_cast<std::size_t>(index.count);
            ranks_->draw_many(points_.data(), size, n, drawn_.data());
            for (std::size_t i = 0; i < size; ++i) chances_[i] = ranks_->probability(drawn_[i], n);
            const std::vector<std::size_t> at(drawn_);
            index.ranked->at_ranks(at.data(), size, drawn_.data());
            return;
        }
        const double total = index.sums->total();
        if (!(total > 0.0)) {
            for (std::size_t i = 0; i < size; ++i) drawn_[i] = nth(index, points_[i]);
            std::fill(chances_.begin(), chances_.end(), 1.0 / static_cast<double>(index.count));
            return;
        }
        for (double& point : points_) point *= total;
        index.sums->find_many(points_.data(), size, drawn_.data());
        for (std::size_t i = 0; i < size; ++i) chances_[i] = chance(index.sums->leaf(drawn_[i]), total);
    }

    // One after the other, since each may use up a step.
    void draw_sparingly(Index& index, BitGenerator& bits, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) {
            const double point = uniform(bits);
            std::size_t slot = 0;
            if (index.ranked) {
                const auto n = static_cast<std::size_t>(index.count);
                const std::size_t rank = ranks_->draw(point, n);
                chances_[i] = ranks_->probability(rank, n);
                slot = index.ranked->at_rank(rank);
            } else if (const double total = index.sums->total(); total > 0.0) {
                slot = index.sums->find(point * total);
                chances_[i] = chance(index.sums->leaf(slot), total);
            } else {
                slot = nth(index, point);
                chances_[i] = 1.0 / static_cast<double>(index.count);
            }
            drawn_[i] = slot;
            use(slot);
        }
    }

    void use(std::size_t slot) {
        for (Index& index : indices_) {
            if (index.has[slot]) --index.left;
        }
        ++uses_[slot];
        if (draws_left(slot) > 0) return;
        for (Index& index : indices_) {
            take_out(index, slot);
            flush(index);
        }
    }

    // All masses are 0: every step alike.
    std::size_t nth(const Index& index, double point) const noexcept {
        auto k = std::min(static_cast<std::int64_t>(point * static_cast<double>(index.count)), index.count - 1);
        std::size_t slot = 0;
        for (;; ++slot) {
            if (index.has[slot] && k-- == 0) return slot;
        }
    }

    // (N * P)^-beta, scaled so that the largest is 1: N cancels.
    void weigh(Index& index, double beta, std::size_t size, float* weights) {
        double least = chances_.empty() ? 1.0 : *std::min_element(chances_.begin(), chances_.end());
        if (options_.over_buffer && index.count > 0) {
            if (index.ranked) {
                least = ranks_->probability(static_cast<std::size_t>(index.count) - 1,
                                            static_cast<std::size_t>(index.count));
            } else if (index.sums->total() > 0.0) {
                least = chance(index.sums->min_positive(), index.sums->total());
            }
        }
        for (std::size_t i = 0; i < size; ++i) weights[i] = static_cast<float>(std::pow(chances_[i] / least, -beta));
    }

    Timeline& timeline_;
    Episodes& episodes_;
    Options options_;
    std::size_t slots_;
    double largest_priority_;
    ZeroPages<double> values_;       // none where the first index or `given_` has them
    std::optional<SumTree> given_;   // priorities; asked for its leaves and the largest, its sums may be infinite
    ZeroPages<std::uint8_t> known_;  // steps that have a value
    ZeroPages<std::uint32_t> uses_;
    std::int64_t valued_ = 0;       // of them
    double largest_given_ = 0.0;    // as values are kept
    double newest_ = 0.0;           // the value of the newest steps
    bool largest_is_gone_ = false;  // while the first index does not know
    std::list<Index> indices_;
    mutable std::optional<RankDistribution> ranks_;
    bool refill_ = false;
    std::vector<Drawn> new_;
    std::vector<Drawn> ended_;
    // Scratch.
    std::vector<std::size_t> drawn_;
    std::vector<double> chances_;
    std::vector<double> points_;
    std::vector<double> masses_;
};

}  // namespace relive
