// The structures behind prioritized draws as Python sees them: for tests alone, the library uses them from `Core`.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstddef>
#include <stdexcept>

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
            .def("leaf", [](const SumTree& tree, std::size_t index) { return tree.leaf(checked(tree, index)); })
            .def("leaves", &leaves)
            .def("set", [](SumTree& tree, std::size_t index,
                           double mass) { tree.set(checked(tree, index), checked_mass(mass)); })
            .def("set_many", &set_many, nb::arg("indices"), nb::arg("masses"))
            .def("find", &SumTree::find)
            .def("find_many", &find_many, nb::arg("masses"), nb::arg("out"))
            .def("clear", &SumTree::clear);
    }

  private:
    template <class T>
    using Array = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

    static std::size_t checked(const SumTree& tree, std::size_t index) {
        if (index >= tree.capacity()) throw nanobind::index_error("no such leaf");
        return index;
    }

    static double checked_mass(double mass) {
        if (!(mass >= 0.0) || !std::isfinite(mass)) throw std::invalid_argument("a mass is finite and not negative");
        return mass;
    }

    static void leaves(const SumTree& tree, const Array<double>& out) {
        if (out.size() != tree.capacity()) throw std::invalid_argument("one item for every leaf");
        for (std::size_t i = 0; i < out.size(); ++i) out.data()[i] = tree.leaf(i);
    }

    static void set_many(SumTree& tree, const Array<const std::size_t>& indices, const Array<const double>& masses) {
        if (indices.size() != masses.size()) throw std::invalid_argument("one mass for every index");
        for (std::size_t i = 0; i < indices.size(); ++i) {
            checked(tree, indices.data()[i]);
            checked_mass(masses.data()[i]);
        }
        tree.set_many(indices.data(), masses.data(), indices.size());
    }

    static void find_many(const SumTree& tree, const Array<const double>& masses, const Array<std::size_t>& out) {
        if (masses.size() != out.size()) throw std::invalid_argument("one leaf for every mass");
        tree.find_many(masses.data(), masses.size(), out.data());
    }
};

inline void bind_trees(nanobind::module_& m) { TreesModule::bind(m); }

}  // namespace relive
