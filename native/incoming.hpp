// Reads what a caller passes to `add` and `extend`, on the fast path: exact NumPy arrays of the stored dtype and
// the full shape, whose values need no conversion. Everything else is refused here (`false`) and made into such
// arrays, or into an error that names the fault, by src/relive/inputs.py.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "dlpack.hpp"
#include "timeline.hpp"

namespace relive {

namespace nb = nanobind;

// What a leaf looks like from outside.
struct LeafSpec {
    DLType dtype;
    std::vector<std::int64_t> shape;
    std::size_t bytes;
    bool bare;  // one number, whose own axis may be missing: a Discrete observation, an action of width 1
};

// An array that arrives: strides in bytes. It is valid as long as the Borrowed that made it.
struct ArrayView {
    const std::byte* data;
    DLType dtype;
    std::size_t ndim;
    const std::int64_t* shape;
    const std::int64_t* strides;
};

// The fields of a NumPy array, as NumPy's C interface has them (numpy/ndarraytypes.h, PyArrayObject_fields; the same
// in NumPy 1 and 2). Reading them takes a twentieth of the time of asking the array for a DLPack capsule, which at
// five arrays is half of what an add of one step takes in all.
struct NumpyFields {
    PyObject ob_base;
    char* data;
    int nd;
    Py_ssize_t* dimensions;
    Py_ssize_t* strides;
    PyObject* base;
    PyObject* descr;
    int flags;
};

// Knows NumPy's array type and its dtype objects, each of which exists once.
class NumpyTypes {
  public:
    // `dtypes`: (dtype object, type code, bits).
    NumpyTypes(nb::handle array_type, const std::vector<std::tuple<nb::object, std::uint8_t, std::uint8_t>>& dtypes)
        : array_type_(nb::borrow(array_type)) {
        for (const auto& [object, code, bits] : dtypes) dtypes_.push_back({object, DLType{code, bits, 1}});
    }

    bool is_array(nb::handle object) const noexcept {
        return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(array_type_.ptr());
    }

    const DLType* find(const PyObject* dtype) const noexcept {
        for (const auto& [object, type] : dtypes_) {
            if (object.ptr() == dtype) return &type;
        }
        return nullptr;
    }

  private:
    nb::object array_type_;
    std::vector<std::pair<nb::object, DLType>> dtypes_;
};

// Opens the arrays of one call.
class Borrowed {
  public:
    Borrowed(const NumpyTypes& types, bool fields_are_known) : types_(types), fields_are_known_(fields_are_known) {}
    ~Borrowed() {
        for (PyObject* capsule : capsules_) Py_DECREF(capsule);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    // False where `object` is not a plain NumPy array of a known dtype.
    bool open(nb::handle object, ArrayView& out) {
        if (!types_.is_array(object)) return false;
        return (fields_are_known_ && open_fields(object, out)) || open_capsule(object, out);
    }

    // Memory for one number, as long as this lives.
    std::byte* hold(std::int64_t number) {
        numbers_.push_back(std::make_unique<std::int64_t>(number));
        return reinterpret_cast<std::byte*>(numbers_.back().get());
    }

  private:
    bool open_fields(nb::handle object, ArrayView& out) const noexcept {
        static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
        const auto* const array = reinterpret_cast<const NumpyFields*>(object.ptr());
        const DLType* const dtype = types_.find(array->descr);
        if (!dtype) return false;
        out = {reinterpret_cast<const std::byte*>(array->data), *dtype, static_cast<std::size_t>(array->nd),
               reinterpret_cast<const std::int64_t*>(array->dimensions),
               reinterpret_cast<const std::int64_t*>(array->strides)};
        return true;
    }

    // For a dtype object that is not the usual one of its kind, and for a NumPy to come whose fields lie elsewhere.
    bool open_capsule(nb::handle object, ArrayView& out) {
        PyObject* const capsule = PyObject_CallMethod(object.ptr(), "__dlpack__", nullptr);
        if (!capsule) {  // a read-only array, or a dtype that DLPack does not know
            PyErr_Clear();
            return false;
        }
        capsules_.push_back(capsule);
        auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, dl_capsule));
        if (!managed || managed->tensor.device.type != dl_cpu) {
            PyErr_Clear();
            return false;
        }
        const DLTensor& t = managed->tensor;
        const auto ndim = static_cast<std::size_t>(t.ndim);
        std::int64_t* const strides = strides_.emplace_back(std::make_unique<std::int64_t[]>(ndim)).get();
        std::int64_t compact = t.dtype.bits / 8;
        for (std::size_t axis = ndim; axis-- > 0;) {
            strides[axis] = t.strides ? t.strides[axis] * (t.dtype.bits / 8) : compact;
            compact *= t.shape[axis];
        }
        out = {static_cast<const std::byte*>(t.data) + t.byte_offset, t.dtype, ndim, t.shape, strides};
        return true;
    }

    const NumpyTypes& types_;
    bool fields_are_known_;
    std::vector<PyObject*> capsules_;
    std::vector<std::unique_ptr<std::int64_t[]>> strides_;
    std::vector<std::unique_ptr<std::int64_t>> numbers_;
};

// The leading axes of what arrives: (lanes,), or (steps, lanes). With one lane its axis may be missing.
struct Leading {
    bool has_steps;
    std::size_t steps;
    std::size_t lanes;

    // Finds out how an array with `item_axes` axes behind the leading ones lies: its first item axis, and its column.
    bool place(const ArrayView& a, std::size_t item_axes, std::size_t& first_item_axis, Column& out) const noexcept {
        const std::size_t before = has_steps ? 1 : 0;
        if (has_steps && (a.ndim == 0 || a.shape[0] != static_cast<std::int64_t>(steps))) return false;
        const bool has_lanes = a.ndim == before + 1 + item_axes;
        if (!has_lanes && !(lanes == 1 && a.ndim == before + item_axes)) return false;
        if (has_lanes && a.shape[before] != static_cast<std::int64_t>(lanes)) return false;
        first_item_axis = before + (has_lanes ? 1 : 0);
        out = {a.data, has_steps ? static_cast<std::ptrdiff_t>(a.strides[0]) : 0,
               has_lanes ? static_cast<std::ptrdiff_t>(a.strides[before]) : 0};
        return true;
    }
    // A lone Python number stands for one step of one lane.
    bool is_lone() const noexcept { return !has_steps && lanes == 1; }
};

inline bool read_items(const ArrayView& array, const LeafSpec& spec, const Leading& leading, Column& out) noexcept {
    std::size_t first = 0;
    if (!leading.place(array, spec.shape.size(), first, out)) return false;
    std::int64_t bytes = spec.dtype.bits / 8;
    for (std::size_t axis = spec.shape.size(); axis-- > 0;) {
        const std::size_t at = first + axis;
        if (array.shape[at] != spec.shape[axis]) return false;
        // An item is one run of bytes; strides say nothing where it has none.
        if (spec.bytes > 0 && array.shape[at] != 1 && array.strides[at] != bytes) return false;
        bytes *= array.shape[at];
    }
    return true;
}

inline bool read_leaf(Borrowed& borrowed, nb::handle object, const LeafSpec& spec, const Leading& leading,
                      Column& out) {
    ArrayView array;
    if (borrowed.open(object, array)) {
        if (!(array.dtype == spec.dtype)) return false;
        std::size_t unused = 0;
        return read_items(array, spec, leading, out) || (spec.bare && leading.place(array, 0, unused, out));
    }
    if (!spec.bare || !leading.is_lone() || !(spec.dtype == DLType{0, 64, 1}) || !PyIndex_Check(object.ptr()))
        return false;
    const Py_ssize_t number = PyNumber_AsSsize_t(object.ptr(), PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    out = {borrowed.hold(number), 0, 0};
    return true;
}

// One object for a space of one leaf, a tuple of objects for a tree.
inline bool read_leaves(Borrowed& borrowed, nb::handle object, const std::vector<LeafSpec>& specs, bool is_tree,
                        const Leading& leading, std::vector<Column>& out) {
    out.resize(specs.size());
    if (!is_tree) return read_leaf(borrowed, object, specs[0], leading, out[0]);
    if (!PyTuple_CheckExact(object.ptr()) || static_cast<std::size_t>(PyTuple_Size(object.ptr())) != specs.size())
        return false;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        const nb::handle item = PyTuple_GetItem(object.ptr(), static_cast<Py_ssize_t>(i));
        if (!read_leaf(borrowed, item, specs[i], leading, out[i])) return false;
    }
    return true;
}

namespace detail {

template <class T>
void widen(const Column& column, const Leading& leading, float* out) noexcept {
    for (std::size_t step = 0; step < leading.steps; ++step, out += leading.lanes) {
        const std::byte* const row = column.at(step, 0);
        if (column.lane_stride == static_cast<std::ptrdiff_t>(sizeof(T))) {  // a loop that compilers vectorise
            for (std::size_t lane = 0; lane < leading.lanes; ++lane)
                out[lane] = static_cast<float>(load<T>(row + lane * sizeof(T)));
        } else {
            for (std::size_t lane = 0; lane < leading.lanes; ++lane)
                out[lane] = static_cast<float>(load<T>(column.at(step, lane)));
        }
    }
}

}  // namespace detail

// Rewards and flags: float32, float64 or bool, made float32 (steps, lanes).
inline bool read_scalars(Borrowed& borrowed, nb::handle object, const Leading& leading, float* out) {
    ArrayView array;
    if (!borrowed.open(object, array)) {
        if (!leading.is_lone() || !PyNumber_Check(object.ptr())) return false;
        const double number = PyFloat_AsDouble(object.ptr());
        if (number == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        *out = static_cast<float>(number);
        return true;
    }
    Column column;
    std::size_t unused = 0;
    if (!leading.place(array, 0, unused, column)) return false;
    if (array.dtype == DLType{dl_float, 32, 1}) {
        detail::widen<float>(column, leading, out);
    } else if (array.dtype == DLType{dl_float, 64, 1}) {
        detail::widen<double>(column, leading, out);
    } else if (array.dtype == DLType{dl_bool, 8, 1}) {
        detail::widen<std::uint8_t>(column, leading, out);
    } else {
        return false;
    }
    return true;
}

// Vector rewards: (steps, lanes, width) float32, float64 or bool, made float32.
inline bool read_vectors(Borrowed& borrowed, nb::handle object, const Leading& leading, std::size_t width, float* out) {
    ArrayView array;
    Column column;
    std::size_t axis = 0;
    if (!borrowed.open(object, array) || !leading.place(array, 1, axis, column)) return false;
    if (array.shape[axis] != static_cast<std::int64_t>(width)) return false;
    const auto read = [&](const auto& value_at) {
        for (std::size_t step = 0; step < leading.steps; ++step) {
            for (std::size_t lane = 0; lane < leading.lanes; ++lane) {
                const std::byte* const item = column.at(step, lane);
                for (std::size_t k = 0; k < width; ++k)
                    *out++ = static_cast<float>(value_at(item + static_cast<std::ptrdiff_t>(k) * array.strides[axis]));
            }
        }
        return true;
    };
    if (array.dtype == DLType{dl_float, 32, 1}) return read(load<float>);
    if (array.dtype == DLType{dl_float, 64, 1}) return read(load<double>);
    if (array.dtype == DLType{dl_bool, 8, 1}) return read(load<std::uint8_t>);
    return false;
}

// The keys of an info that are looked up: the time limit, and where the info of a step lies that was followed by a reset.
struct InfoKeys {
    nb::object timeout = nb::steal(PyUnicode_InternFromString("TimeLimit.truncated"));
    nb::object final_info = nb::steal(PyUnicode_InternFromString("final_info"));
};

// `info[TimeLimit.truncated]` of one environment as a flag: True or False where present.
inline bool read_info(nb::handle info, const InfoKeys& keys, float& out) {
    if (!PyDict_CheckExact(info.ptr())) return false;
    out = 0.0F;
    if (PyDict_Size(info.ptr()) == 0) return true;
    PyObject* const value = PyDict_GetItemWithError(info.ptr(), keys.timeout.ptr());
    PyObject* const final_info =
        PyErr_Occurred() ? nullptr : PyDict_GetItemWithError(info.ptr(), keys.final_info.ptr());
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    if (value == Py_True) out = 1.0F;
    return !final_info && (!value || value == Py_True || value == Py_False);
}

// The same of all environments: a list of dicts, or for one environment its dict alone.
inline bool read_infos(nb::handle infos, const InfoKeys& keys, std::size_t lanes, float* out) {
    if (lanes == 1 && PyDict_CheckExact(infos.ptr())) return read_info(infos, keys, *out);
    if (!PyList_CheckExact(infos.ptr()) || static_cast<std::size_t>(PyList_Size(infos.ptr())) != lanes) return false;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (!read_info(PyList_GetItem(infos.ptr(), static_cast<Py_ssize_t>(lane)), keys, out[lane])) return false;
    }
    return true;
}

// The same for many steps: a list of such lists.
inline bool read_many_infos(nb::handle infos, const InfoKeys& keys, const Leading& leading, float* out) {
    if (!PyList_CheckExact(infos.ptr()) || static_cast<std::size_t>(PyList_Size(infos.ptr())) != leading.steps)
        return false;
    for (std::size_t step = 0; step < leading.steps; ++step) {
        const nb::handle at_step = PyList_GetItem(infos.ptr(), static_cast<Py_ssize_t>(step));
        if (!read_infos(at_step, keys, leading.lanes, out + step * leading.lanes)) return false;
    }
    return true;
}

// A boolean array (lanes,).
inline bool read_mask(Borrowed& borrowed, nb::handle object, const Leading& leading, std::vector<std::uint8_t>& out) {
    ArrayView array;
    if (!borrowed.open(object, array) || array.ndim != 1 || !(array.dtype == DLType{dl_bool, 8, 1})) return false;
    if (array.shape[0] != static_cast<std::int64_t>(leading.lanes)) return false;
    for (std::size_t lane = 0; lane < leading.lanes; ++lane) {
        out.push_back(load<std::uint8_t>(array.data + static_cast<std::ptrdiff_t>(lane) * array.strides[0]));
    }
    return true;
}

}  // namespace relive
