// The masses that prioritized draws are made by, and their sums: which leaf does the prefix mass m lie in?
//
// A tree of eight children to a node, that is one cache line per level: at 1e6 leaves a descent reads seven lines, of
// which two at most come from far, and sixteen children (five levels of two lines) were slower to scan and to sum. All
// levels lie in one block of zero pages, leaves first, so memory is touched only as far as leaves are set.
// A parent is always summed anew from its children, in one fixed order: nothing drifts, and the sums of a descent are
// those that the parents hold.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "bytes.hpp"

namespace relive {

struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
};
template <class T>
using ZeroPages = std::unique_ptr<T[], Free>;

// `size` items of zero bytes. Of a large block no page is there before it is written.
template <class T>
ZeroPages<T> zero_pages(std::size_t size) {
    static_assert(std::is_trivial_v<T>);
    ZeroPages<T> memory(static_cast<T*>(std::calloc(size, sizeof(T))));
    if (!memory) throw std::bad_alloc();
    return memory;
}

// Masses are finite and not negative, and indices below the capacity: the caller checks. Reading needs no lock, if
// nobody writes.
class SumTree {
  public:
    static constexpr std::size_t fan_out = 8;

    // All masses are 0 at first. `keep_max` and `keep_min` say whether max() and min_positive() are kept too.
    explicit SumTree(std::size_t capacity, bool keep_max = false, bool keep_min = false) : capacity_(capacity) {
        if (capacity == 0) throw std::invalid_argument("a sum tree has at least one leaf");
        if (capacity > std::size_t{1} << 48) throw std::length_error("a sum tree of more than 2**48 leaves");
        std::vector<std::size_t> nodes;  // of every level, the last of which is the root's own
        for (std::size_t size = capacity; nodes.empty() || size > 1;) nodes.push_back(size = nodes_of(size));
        nodes.push_back(1);
        std::size_t total_nodes = 0;
        for (const std::size_t count : nodes) total_nodes += count;
        const std::size_t inner_nodes = total_nodes - nodes[0];
        allocate(total_nodes + (keep_max ? inner_nodes : 0) + (keep_min ? inner_nodes : 0));
        sums_ = carve(nodes, nullptr);
        if (keep_max) largest_ = carve(nodes, sums_[0]);
        if (keep_min) smallest_ = carve(nodes, sums_[0]);
        nodes.pop_back();
        for (const std::size_t count : nodes) marks_.emplace_back((count + 63) / 64);
    }

    std::size_t capacity() const noexcept { return capacity_; }
    double total() const noexcept { return sums_.back()[0]; }
    double leaf(std::size_t index) const noexcept { return sums_[0][index]; }
    const double* leaves() const noexcept { return sums_[0]; }

    // The largest mass; 0 where all are 0.
    double max() const noexcept {
        assert(!largest_.empty());
        return largest_.back()[0];
    }

    // The smallest mass that is not 0; infinite where all are 0.
    double min_positive() const noexcept {
        assert(!smallest_.empty());
        const double smallest = smallest_.back()[0];
        return smallest > 0.0 ? smallest : std::numeric_limits<double>::infinity();
    }

    void set(std::size_t index, double mass) noexcept {
        assert(index < capacity_);
        sums_[0][index] = mass;
        used_ = std::max(used_, index + 1);
        for (std::size_t level = 0; level < levels(); ++level) {
            index /= fan_out;
            refresh<sum_of>(sums_, level, index);
            if (!largest_.empty()) refresh<largest_of>(largest_, level, index);
            if (!smallest_.empty()) refresh<smallest_of>(smallest_, level, index);
        }
    }

    // Asks for the lines that a new mass of this leaf changes, as far as they may lie far away.
    [[gnu::always_inline]] void fetch_path(std::size_t index) const noexcept {
        fetch(sums_[0] + index);
        for (const std::vector<double*>* values : {&sums_, &largest_, &smallest_}) {
            if (!values->empty()) fetch((*values)[1] + index / fan_out);
        }
    }

    // The masses of `size` leaves; of equal indices the last one counts. Every parent above them is computed once.
    void set_many(const std::size_t* indices, const double* masses, std::size_t size) {
        stale_.resize(size);  // before anything changes, since it may throw
        changed_.resize(size);
        for (std::size_t i = 0; i < size; ++i) fetch_path(indices[i]);
        std::size_t stale = 0;
        for (std::size_t i = 0; i < size; ++i) {
            assert(indices[i] < capacity_);
            sums_[0][indices[i]] = masses[i];
            used_ = std::max(used_, indices[i] + 1);
            stale += mark(0, indices[i] / fan_out, stale);
        }
        if (!largest_.empty()) refresh_changed<largest_of>(largest_, stale);
        if (!smallest_.empty()) refresh_changed<smallest_of>(smallest_, stale);
        for (std::size_t level = 0; level < levels(); ++level) {
            refresh_all<sum_of>(sums_, level, stale);
            std::size_t parents = 0;
            for (std::size_t i = 0; i < stale; ++i) {
                const std::size_t node = stale_[i];
                marks_[level][node / 64] = 0;
                if (level + 1 < levels()) parents += mark(level + 1, node / fan_out, parents);
            }
            stale = parents;
        }
    }

    // The masses of `size` leaves from `first` on: leaf i gets mass_of(i).
    template <class MassOf>
    void set_range(std::size_t first, std::size_t size, const MassOf& mass_of) noexcept {
        if (size == 0) return;
        std::size_t last = first + size - 1;
        assert(last < capacity_);
        for (std::size_t i = first; i <= last; ++i) sums_[0][i] = mass_of(i);
        used_ = std::max(used_, last + 1);
        for (std::size_t level = 0; level < levels(); ++level) {
            first /= fan_out;
            last /= fan_out;
            for (std::size_t node = first; node <= last; ++node) {
                refresh<sum_of>(sums_, level, node);
                if (!largest_.empty()) refresh<largest_of>(largest_, level, node);
                if (!smallest_.empty()) refresh<smallest_of>(smallest_, level, node);
            }
        }
    }

    // The sum of the leaves before `index`, which is at most the capacity.
    double sum_before(std::size_t index) const noexcept {
        assert(index <= capacity_);
        if (index == capacity_) return total();
        double sum = 0.0;
        for (std::size_t level = 0; level < levels(); ++level) {
            double siblings = 0.0;
            for (std::size_t i = index / fan_out * fan_out; i < index; ++i) siblings += sums_[level][i];
            sum += siblings;  // the smaller ones first
            index /= fan_out;
        }
        return sum;
    }

    // The leaf j with sum(leaves before j) <= mass < sum(leaves up to j), never one of mass 0: a mass below 0 is in the
    // first leaf that has some, one of the total or more in the last. 0 where all are 0.
    std::size_t find(double mass) const noexcept {
        std::size_t leaf = 0;
        find_many(&mass, 1, &leaf);
        return leaf;
    }

    // The leaf of each of `size` masses. All descend together, so that they wait for memory together; near masses one
    // after the other share their lines. Where `into` is given it gets how far into its leaf each mass lies.
    void find_many(const double* masses, std::size_t size, std::size_t* out, double* into = nullptr) const noexcept {
        std::array<double, together> rest;
        for (std::size_t i = 0; i < size; i += together) {
            descend(masses + i, std::min(together, size - i), out + i, into ? into + i : rest.data());
        }
    }

    // All masses are 0 again. Memory that was never touched stays so.
    void clear() noexcept {
        std::size_t used = used_;
        for (std::size_t level = 0; level <= levels(); ++level) {
            for (const std::vector<double*>* values : {&sums_, &largest_, &smallest_}) {
                const bool is_shared = level == 0 && values != &sums_;
                if (!values->empty() && !is_shared) std::memset((*values)[level], 0, used * sizeof(double));
            }
            used = nodes_of(used);
        }
        used_ = 0;
    }

  private:
    static constexpr std::size_t line = 64;
    static_assert(fan_out * sizeof(double) == line);
    static constexpr std::size_t together = 256;  // descents whose state stays in the nearest cache

    static std::size_t nodes_of(std::size_t size) noexcept { return (size + fan_out - 1) / fan_out; }

    // Levels that have a parent level.
    std::size_t levels() const noexcept { return sums_.size() - 1; }

    void allocate(std::size_t nodes) {
        memory_ = zero_pages<std::byte>((nodes + 1) * line);
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
        free_ = reinterpret_cast<double*>((address + line - 1) & ~std::uintptr_t{line - 1});
    }

    // An array for every level; the leaves are shared by all kinds of parents.
    std::vector<double*> carve(const std::vector<std::size_t>& nodes, double* leaves) {
        std::vector<double*> arrays;
        for (const std::size_t count : nodes) {
            if (arrays.empty() && leaves) {
                arrays.push_back(leaves);
            } else {
                arrays.push_back(free_);
                free_ += count * fan_out;
            }
        }
        return arrays;
    }

    static void fetch(const double* from) noexcept {
        prefetch(reinterpret_cast<const std::byte*>(from), sizeof(double));
    }

    static double sum_of(const double* children) noexcept {
        double sum = children[0];
        for (std::size_t child = 1; child < fan_out; ++child) sum += children[child];
        return sum;
    }

    static double largest_of(const double* children) noexcept {
        return folded(children, [](double a, double b) { return a < b ? b : a; });
    }

    // 0, as fresh memory has it, stands for "none is positive".
    static double smallest_of(const double* children) noexcept {
        constexpr double none = std::numeric_limits<double>::infinity();
        std::array<double, fan_out> positive;
        for (std::size_t child = 0; child < fan_out; ++child) {
            positive[child] = children[child] > 0.0 ? children[child] : none;
        }
        const double smallest = folded(positive.data(), [](double a, double b) { return b < a ? b : a; });
        return smallest == none ? 0.0 : smallest;
    }

    // Halves onto each other: shorter chains than one after the other, and two at a time.
    template <class Better>
    static double folded(const double* values, const Better& better) noexcept {
        std::array<double, fan_out / 2> quads;
        for (std::size_t i = 0; i < 4; ++i) quads[i] = better(values[i], values[i + 4]);
        return better(better(quads[0], quads[2]), better(quads[1], quads[3]));
    }

    template <double (*Combine)(const double*) noexcept>
    static void refresh(const std::vector<double*>& values, std::size_t level, std::size_t node) noexcept {
        values[level + 1][node] = Combine(values[level] + node * fan_out);
    }

    template <double (*Combine)(const double*) noexcept>
    void refresh_all(const std::vector<double*>& values, std::size_t level, std::size_t stale) const noexcept {
        const double* const children = values[level];
        double* const parents = values[level + 1];
        for (std::size_t i = 0; i < stale; ++i) parents[stale_[i]] = Combine(children + stale_[i] * fan_out);
    }

    // The same for an extreme of the leaves, on all levels: most new leaves change none, so few nodes are left after the
    // first level.
    template <double (*Combine)(const double*) noexcept>
    void refresh_changed(const std::vector<double*>& values, std::size_t stale) noexcept {
        std::copy(stale_.begin(), stale_.begin() + static_cast<std::ptrdiff_t>(stale), changed_.begin());
        for (std::size_t level = 0; level < levels() && stale > 0; ++level) {
            std::size_t parents = 0;
            for (std::size_t i = 0; i < stale; ++i) {
                const std::size_t node = changed_[i];
                const double value = Combine(values[level] + node * fan_out);
                const bool changes = value != values[level + 1][node];
                values[level + 1][node] = value;
                changed_[parents] = node / fan_out;
                parents += changes ? 1 : 0;
            }
            stale = parents;
        }
    }

    // Puts `node` at `place` of the stale nodes; 1 where it is not yet among them, else 0. Without a branch, which
    // nobody could predict.
    std::size_t mark(std::size_t level, std::size_t node, std::size_t place) noexcept {
        std::uint64_t& word = marks_[level][node / 64];
        const std::size_t bit = node % 64;
        const bool is_new = ((word >> bit) & 1) == 0;
        word |= std::uint64_t{1} << bit;
        stale_[place] = node;
        return is_new ? 1 : 0;
    }

    // The largest number below `value`, which is positive.
    static double below(double value) noexcept {
        return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) - 1);
    }

    // Of a node whose sum is above `rest`: the first child with a prefix sum above it, which therefore has a mass.
    // `rest` is then what is left for the child, held below the child's sum, which rounding alone could reach.
    static std::size_t choose(const double* children, double& rest) noexcept {
        std::array<double, fan_out> before;
        before[0] = 0.0;
        std::size_t chosen = 0;
        for (std::size_t child = 0; child + 1 < fan_out; ++child) {
            before[child + 1] = before[child] + children[child];
            chosen += before[child + 1] <= rest ? 1 : 0;
        }
        rest = std::min(rest - before[chosen], below(children[chosen]));
        return chosen;
    }

    void descend(const double* masses, std::size_t size, std::size_t* nodes, double* rest) const noexcept {
        std::fill(nodes, nodes + size, std::size_t{0});
        std::fill(rest, rest + size, 0.0);
        const double sum = total();
        if (!(sum > 0.0)) return;
        for (std::size_t i = 0; i < size; ++i) rest[i] = std::min(masses[i] > 0.0 ? masses[i] : 0.0, below(sum));
        for (std::size_t level = levels() - 1; level > 0; --level) {
            for (std::size_t i = 0; i < size; ++i) {
                nodes[i] = nodes[i] * fan_out + choose(sums_[level] + nodes[i] * fan_out, rest[i]);
                fetch(sums_[level - 1] + nodes[i] * fan_out);
            }
        }
        for (std::size_t i = 0; i < size; ++i) {
            nodes[i] = nodes[i] * fan_out + choose(sums_[0] + nodes[i] * fan_out, rest[i]);
            if (masses[i] >= sum) nodes[i] = last_positive();  // which may be too light to show in the sums
        }
    }

    std::size_t last_positive() const noexcept {
        std::size_t node = 0;
        for (std::size_t level = levels(); level-- > 0;) {
            const double* const children = sums_[level] + node * fan_out;
            std::size_t child = fan_out - 1;
            while (child > 0 && !(children[child] > 0.0)) --child;
            node = node * fan_out + child;
        }
        return node;
    }

    std::size_t capacity_;
    std::size_t used_ = 0;  // no leaf from here on was ever set
    ZeroPages<std::byte> memory_;
    double* free_ = nullptr;  // what no array has yet, while they are laid out
    // By level: the leaves first, the root's single value last.
    std::vector<double*> sums_;
    std::vector<double*> largest_;
    std::vector<double*> smallest_;
    // Of set_many: nodes whose parents are to be computed, and a bit for each, all 0 between calls.
    std::vector<std::size_t> stale_;
    std::vector<std::size_t> changed_;
    std::vector<std::vector<std::uint64_t>> marks_;
};

}  // namespace relive
