// Reads what a caller passes to `add` and `extend`, on the fast path: exact NumPy arrays of the stored dtype and
// the full shape, whose values need no conversion. Everything else is refused here (`false`) and made into such
// arrays, or into an error that names the fault, by src/relive/inputs.py.
#pragma once

#include <nanobind/nanobind.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dlpack.hpp"
#include "timeline.hpp"

namespace relive {

namespace nb = nanobind;

// What a leaf looks like from outside.
struct LeafSpec {
    DLType dtype;
    std::vector<std::int64_t> shape;
    std::size_t bytes;
};

// Owns the capsules of the arrays that are being read.
class Borrowed {
  public:
    Borrowed(PyTypeObject* array_type, PyObject* method) : array_type_(array_type), method_(method) {}
    ~Borrowed() {
        for (PyObject* capsule : capsules_) Py_DECREF(capsule);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    // The array behind `object`, or null where it is not a plain NumPy array that shares its memory.
    const DLTensor* tensor(nb::handle object) {
        if (Py_TYPE(object.ptr()) != array_type_) return nullptr;
        PyObject* const capsule = PyObject_VectorcallMethod(method_, stack(object), 1, nullptr);
        if (!capsule) {  // a read-only array, or a dtype that DLPack does not know
            PyErr_Clear();
            return nullptr;
        }
        capsules_.push_back(capsule);
        auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, dl_capsule));
        if (!managed) {
            PyErr_Clear();
            return nullptr;
        }
        return managed->tensor.device.type == dl_cpu ? &managed->tensor : nullptr;
    }

  private:
    PyObject** stack(nb::handle object) {
        argument_ = object.ptr();
        return &argument_;
    }
    PyTypeObject* array_type_;
    PyObject* method_;
    PyObject* argument_ = nullptr;
    std::vector<PyObject*> capsules_;
};

inline std::int64_t stride(const DLTensor& t, std::int32_t axis) noexcept {
    if (t.strides) return t.strides[axis];
    std::int64_t items = 1;
    for (std::int32_t i = axis + 1; i < t.ndim; ++i) items *= t.shape[i];
    return items;
}

// The leading axes of what arrives: (lanes,), or (steps, lanes).
struct Leading {
    bool has_steps;
    std::size_t steps;
    std::size_t lanes;

    std::int32_t axes() const noexcept { return has_steps ? 2 : 1; }
    bool fits(const DLTensor& t) const noexcept {
        if (has_steps && t.shape[0] != static_cast<std::int64_t>(steps)) return false;
        return t.shape[has_steps ? 1 : 0] == static_cast<std::int64_t>(lanes);
    }
};

inline const std::byte* first_byte(const DLTensor& t) noexcept {
    return static_cast<const std::byte*>(t.data) + t.byte_offset;
}

inline bool read_leaf(Borrowed& borrowed, nb::handle object, const LeafSpec& spec, const Leading& leading,
                      Column& out) {
    const DLTensor* const t = borrowed.tensor(object);
    const auto item_axes = static_cast<std::int32_t>(spec.shape.size());
    if (!t || !(t->dtype == spec.dtype) || t->ndim != leading.axes() + item_axes || !leading.fits(*t))
        return false;
    std::int64_t items = 1;
    for (std::int32_t axis = item_axes; axis-- > 0;) {
        const std::int32_t at = leading.axes() + axis;
        if (t->shape[at] != spec.shape[static_cast<std::size_t>(axis)]) return false;
        if (t->shape[at] != 1 && stride(*t, at) != items) return false;  // an item is one run of bytes
        items *= t->shape[at];
    }
    const auto width = static_cast<std::ptrdiff_t>(spec.dtype.bits / 8);
    out.data = first_byte(*t);
    out.lane_stride = stride(*t, leading.axes() - 1) * width;
    out.step_stride = leading.has_steps ? stride(*t, 0) * width : 0;
    return true;
}

// One object for a space of one leaf, a tuple of objects for a tree.
inline bool read_leaves(Borrowed& borrowed, nb::handle object, const std::vector<LeafSpec>& specs,
                        bool is_tree, const Leading& leading, std::vector<Column>& out) {
    out.resize(specs.size());
    if (!is_tree) return read_leaf(borrowed, object, specs[0], leading, out[0]);
    if (!PyTuple_CheckExact(object.ptr()) ||
        static_cast<std::size_t>(PyTuple_Size(object.ptr())) != specs.size())
        return false;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        const nb::handle item = PyTuple_GetItem(object.ptr(), static_cast<Py_ssize_t>(i));
        if (!read_leaf(borrowed, item, specs[i], leading, out[i])) return false;
    }
    return true;
}

namespace detail {

template <class T>
void widen(const DLTensor& t, const Leading& leading, float* out) {
    const auto* const data = reinterpret_cast<const T*>(first_byte(t));
    const std::int64_t step_stride = leading.has_steps ? stride(t, 0) : 0;
    const std::int64_t lane_stride = stride(t, leading.axes() - 1);
    for (std::size_t step = 0; step < leading.steps; ++step) {
        for (std::size_t lane = 0; lane < leading.lanes; ++lane) {
            *out++ = static_cast<float>(data[static_cast<std::int64_t>(step) * step_stride +
                                             static_cast<std::int64_t>(lane) * lane_stride]);
        }
    }
}

}  // namespace detail

// Rewards and flags: float32, float64 or bool, made float32 (steps, lanes).
inline bool read_scalars(Borrowed& borrowed, nb::handle object, const Leading& leading, float* out) {
    const DLTensor* const t = borrowed.tensor(object);
    if (!t || t->ndim != leading.axes() || !leading.fits(*t) || t->dtype.lanes != 1) return false;
    if (t->dtype.code == dl_float && t->dtype.bits == 32) {
        detail::widen<float>(*t, leading, out);
    } else if (t->dtype.code == dl_float && t->dtype.bits == 64) {
        detail::widen<double>(*t, leading, out);
    } else if (t->dtype.code == dl_bool && t->dtype.bits == 8) {
        detail::widen<std::uint8_t>(*t, leading, out);
    } else {
        return false;
    }
    return true;
}

// `info[key]` of every environment as a flag: a list of dicts whose values, where present, are True or False.
inline bool read_infos(nb::handle infos, PyObject* key, std::size_t lanes, float* out) {
    if (!PyList_CheckExact(infos.ptr()) || static_cast<std::size_t>(PyList_Size(infos.ptr())) != lanes)
        return false;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        PyObject* const info = PyList_GetItem(infos.ptr(), static_cast<Py_ssize_t>(lane));
        if (!PyDict_CheckExact(info)) return false;
        PyObject* const value = PyDict_GetItemWithError(info, key);
        if (!value && PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        if (value && value != Py_True && value != Py_False) return false;
        out[lane] = value == Py_True ? 1.0F : 0.0F;
    }
    return true;
}

// The same for many steps: a list of such lists.
inline bool read_many_infos(nb::handle infos, PyObject* key, const Leading& leading, float* out) {
    if (!PyList_CheckExact(infos.ptr()) ||
        static_cast<std::size_t>(PyList_Size(infos.ptr())) != leading.steps)
        return false;
    for (std::size_t step = 0; step < leading.steps; ++step) {
        const nb::handle at_step = PyList_GetItem(infos.ptr(), static_cast<Py_ssize_t>(step));
        if (!read_infos(at_step, key, leading.lanes, out + step * leading.lanes)) return false;
    }
    return true;
}

// A boolean array (lanes,) of one byte an item.
inline bool read_mask(Borrowed& borrowed, nb::handle object, std::size_t lanes,
                      std::vector<std::uint8_t>& out) {
    const DLTensor* const t = borrowed.tensor(object);
    if (!t || t->ndim != 1 || t->shape[0] != static_cast<std::int64_t>(lanes) || t->dtype.code != dl_bool)
        return false;
    const auto* const data = reinterpret_cast<const std::uint8_t*>(first_byte(*t));
    for (std::size_t lane = 0; lane < lanes; ++lane)
        out.push_back(data[static_cast<std::int64_t>(lane) * stride(*t, 0)]);
    return true;
}

}  // namespace relive
