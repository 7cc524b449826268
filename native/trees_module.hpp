// The structures behind prioritized draws as Python sees them: for tests alone, the library uses them from `Core`.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include "ranked.hpp"
#include "sum_tree.hpp"

namespace relive {

class TreesModule {
  public:
    static void bind(nanobind::module_& m) {
        namespace nb = nanobind;
        nb::class_<SumTree>(m, "SumTree")
            .def(nb::init<std::size_t, bool, bool>(), nb::arg("capacity"), nb::arg("keep_max") = false,
                 nb::arg("keep_min") = false)
            .def("capacity", &SumTree::capacity)
            .def("total", &SumTree::total)
            .def("max", &SumTree::max)
            .def("min_positive", &SumTree::min_positive)
            .def("leaf",
                 [](const SumTree& tree, std::size_t index) { return tree.leaf(below(index, tree.capacity())); })
            .def("leaves", &leaves, nb::arg("out"))
            .def("set", [](SumTree& tree, std::size_t index,
                           double mass) { tree.set(below(index, tree.capacity()), finite(mass)); })
            .def("set_many", &set_many, nb::arg("indices"), nb::arg("masses"))
            .def("set_range", &set_range, nb::arg("first"), nb::arg("masses"))
            .def("sum_before", [](const SumTree& tree,
                                  std::size_t index) { return tree.sum_before(below(index, tree.capacity() + 1)); })
            .def("find", &SumTree::find, nb::arg("mass"))
            .def("find_many", &find_many, nb::arg("masses"), nb::arg("out"), nb::arg("into") = nb::none())
            .def("clear", &SumTree::clear);
        nb::class_<Ranked>(m, "Ranked")
            .def(nb::init<std::size_t>(), nb::arg("capacity"))
            .def("capacity", &Ranked::capacity)
            .def("size", &Ranked::size)
            .def("contains", [](const Ranked& r, std::size_t slot) { return r.contains(below(slot, r.capacity())); })
            .def("priority", [](const Ranked& r, std::size_t slot) { return r.priority(held(r, slot)); })
            .def("number", [](const Ranked& r, std::size_t slot) { return r.number(held(r, slot)); })
            .def("max_priority", &Ranked::max_priority)
            .def("insert", &insert, nb::arg("slot"), nb::arg("priority"), nb::arg("number"))
            .def("erase", [](Ranked& r, std::size_t slot) { r.erase(held(r, slot)); })
            .def("update",
                 [](Ranked& r, std::size_t slot, double priority) { r.update(held(r, slot), finite(priority)); })
            .def("update_many", &update_many, nb::arg("slots"), nb::arg("priorities"))
            .def("at_rank", [](const Ranked& r, std::size_t rank) { return r.at_rank(below(rank, r.size())); })
            .def("at_ranks", &at_ranks, nb::arg("ranks"), nb::arg("out"))
            .def("rank", [](const Ranked& r, std::size_t slot) { return r.rank(held(r, slot)); })
            .def("clear", &Ranked::clear);
        nb::class_<RankDistribution>(m, "RankDistribution")
            .def(nb::init<double, std::size_t>(), nb::arg("alpha"), nb::arg("capacity"))
            .def("alpha", &RankDistribution::alpha)
            .def("capacity", &RankDistribution::capacity)
            .def("probability", &probability, nb::arg("rank"), nb::arg("n"))
            .def("draw", &draw, nb::arg("uniform"), nb::arg("n"))
            .def("draw_many", &draw_many, nb::arg("uniforms"), nb::arg("n"), nb::arg("out"));
    }

  private:
    template <class T>
    using Array = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

    static void require(bool holds, const char* message) {
        if (!holds) throw std::invalid_argument(message);
    }

    static std::size_t below(std::size_t index, std::size_t bound) {
        if (index >= bound) throw nanobind::index_error("index out of bounds");
        return index;
    }

    static double finite(double value) {
        require(value >= 0.0 && std::isfinite(value), "masses and priorities are finite and not negative");
        return value;
    }

    static std::size_t held(const Ranked& ranked, std::size_t slot) {
        require(ranked.contains(below(slot, ranked.capacity())), "a slot that is not held");
        return slot;
    }

    static void leaves(const SumTree& tree, const Array<double>& out) {
        require(out.size() == tree.capacity(), "one item for every leaf");
        std::copy(tree.leaves(), tree.leaves() + tree.capacity(), out.data());
    }

    static void set_many(SumTree& tree, const Array<const std::size_t>& indices, const Array<const double>& masses) {
        require(indices.size() == masses.size(), "one mass for every index");
        for (std::size_t i = 0; i < indices.size(); ++i) {
            below(indices.data()[i], tree.capacity());
            finite(masses.data()[i]);
        }
        tree.set_many(indices.data(), masses.data(), indices.size());
    }

    static void set_range(SumTree& tree, std::size_t first, const Array<const double>& masses) {
        require(first <= tree.capacity() && masses.size() <= tree.capacity() - first, "a range of leaves");
        for (std::size_t i = 0; i < masses.size(); ++i) finite(masses.data()[i]);
        tree.set_range(first, masses.size(), [&](std::size_t leaf) { return masses.data()[leaf - first]; });
    }

    static void find_many(const SumTree& tree, const Array<const double>& masses, const Array<std::size_t>& out,
                          const std::optional<Array<double>>& into) {
        require(masses.size() == out.size() && (!into || into->size() == out.size()), "one leaf for every mass");
        tree.find_many(masses.data(), masses.size(), out.data(), into ? into->data() : nullptr);
    }

    static void insert(Ranked& ranked, std::size_t slot, double priority, std::int64_t number) {
        require(!ranked.contains(below(slot, ranked.capacity())), "a slot that is held already");
        ranked.insert(slot, finite(priority), number);
    }

    static void update_many(Ranked& ranked, const Array<const std::size_t>& slots,
                            const Array<const double>& priorities) {
        require(slots.size() == priorities.size(), "one priority for every slot");
        for (std::size_t i = 0; i < slots.size(); ++i) {
            held(ranked, slots.data()[i]);
            finite(priorities.data()[i]);
        }
        ranked.update_many(slots.data(), priorities.data(), slots.size());
    }

    static void at_ranks(const Ranked& ranked, const Array<const std::size_t>& ranks, const Array<std::size_t>& out) {
        require(ranks.size() == out.size(), "one slot for every rank");
        for (std::size_t i = 0; i < ranks.size(); ++i) below(ranks.data()[i], ranked.size());
        ranked.at_ranks(ranks.data(), ranks.size(), out.data());
    }

    static void check(const RankDistribution& distribution, std::size_t n) {
        require(n > 0 && n <= distribution.capacity(), "one rank at least, and no more than there are");
    }

    static double probability(RankDistribution& distribution, std::size_t rank, std::size_t n) {
        check(distribution, n);
        return distribution.probability(below(rank, n), n);
    }

    static std::size_t draw(RankDistribution& distribution, double uniform, std::size_t n) {
        check(distribution, n);
        return distribution.draw(uniform, n);
    }

    static void draw_many(RankDistribution& distribution, const Array<const double>& uniforms, std::size_t n,
                          const Array<std::size_t>& out) {
        check(distribution, n);
        require(uniforms.size() == out.size(), "one rank for every draw");
        distribution.draw_many(uniforms.data(), uniforms.size(), n, out.data());
    }
};

inline void bind_trees(nanobind::module_& m) { TreesModule::bind(m); }

}  // namespace relive
