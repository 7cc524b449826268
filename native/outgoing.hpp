// Hands batches out: every field becomes a DLPack capsule over arena memory, which the caller's converter turns
// into a tensor. Each tensor owns its share of the block; the last one gives it back.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena.hpp"
#include "dlpack.hpp"

namespace relive {

namespace nb = nanobind;

// One field of a batch: (size, *shape).
struct Field {
    DLType dtype;
    std::vector<std::int64_t> shape;
    std::size_t bytes;  // of one item
};

namespace detail {

struct Exported {
    DLManagedTensor managed;
    Block* block;
    std::array<std::int64_t, 8> few;  // shape and strides, where they fit
    std::vector<std::int64_t> many;   // else
};

inline void drop_exported(DLManagedTensor* self) noexcept {
    auto* const exported = static_cast<Exported*>(self->context);
    Arena::give_back(exported->block);
    delete exported;
}

inline void drop_capsule(PyObject* capsule) noexcept {
    if (!PyCapsule_IsValid(capsule, dl_capsule)) return;  // a consumer has taken the tensor over
    auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, dl_capsule));
    managed->deleter(managed);
}

}  // namespace detail

// The memory of one batch. Fields up to `own_block` bytes share a block; a larger one has its own, so that a tensor
// that is kept does not keep all others.
class BatchMemory {
  public:
    static constexpr std::size_t own_block = std::size_t{64} << 10;

    BatchMemory(Arena& arena, const std::vector<Field>& fields, std::size_t size) : fields_(&fields), size_(size) {
        places_.resize(fields.size());
        try {
            place(arena);
        } catch (...) {
            give_back_rest();
            throw;
        }
    }
    ~BatchMemory() { give_back_rest(); }
    BatchMemory(const BatchMemory&) = delete;
    BatchMemory& operator=(const BatchMemory&) = delete;

    std::byte* data(std::size_t field) const noexcept { return places_[field].block->data + places_[field].offset; }

    // Hands out the first `size` items of every field alone.
    void shrink(std::size_t size) noexcept { size_ = std::min(size, size_); }

    // Calls `convert` on a capsule for every field: a tuple of what it returns, followed by `nones` times None.
    nb::object hand_out(nb::handle convert, std::size_t nones = 0) {
        nb::object tensors = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(places_.size() + nones)));
        if (!tensors.is_valid()) throw nb::python_error();
        for (std::size_t i = 0; i < places_.size(); ++i) {
            nb::object tensor = convert(export_field(i));
            PyTuple_SetItem(tensors.ptr(), static_cast<Py_ssize_t>(i), tensor.release().ptr());
        }
        for (std::size_t i = 0; i < nones; ++i) {
            PyTuple_SetItem(tensors.ptr(), static_cast<Py_ssize_t>(places_.size() + i), nb::none().release().ptr());
        }
        return tensors;
    }

  private:
    struct Place {
        Block* block = nullptr;
        std::size_t offset = 0;
    };

    void place(Arena& arena) {
        std::size_t shared_bytes = 0;
        std::uint32_t shared_users = 0;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const std::size_t bytes = (*fields_)[i].bytes * size_;
            if (bytes > own_block) {
                places_[i].block = arena.take(bytes, 1);
            } else {
                places_[i].offset = shared_bytes;
                shared_bytes += (bytes + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
                ++shared_users;
            }
        }
        Block* const shared = shared_users ? arena.take(shared_bytes, shared_users) : nullptr;
        for (Place& place : places_) {
            if (!place.block) place.block = shared;
        }
    }

    void give_back_rest() noexcept {
        for (std::size_t i = handed_out_; i < places_.size(); ++i) {
            if (places_[i].block) Arena::give_back(places_[i].block);
        }
    }

    nb::object export_field(std::size_t i) {
        const Field& field = (*fields_)[i];
        auto exported = std::make_unique<detail::Exported>();
        exported->block = places_[i].block;
        const std::size_t axes = field.shape.size() + 1;
        if (2 * axes > exported->few.size()) exported->many.resize(2 * axes);
        std::int64_t* const shape = exported->many.empty() ? exported->few.data() : exported->many.data();
        std::int64_t* const strides = shape + axes;
        shape[0] = static_cast<std::int64_t>(size_);
        std::copy(field.shape.begin(), field.shape.end(), shape + 1);
        std::int64_t items = 1;
        for (std::size_t axis = axes; axis-- > 0;) {
            strides[axis] = items;
            items *= shape[axis];
        }
        DLTensor& t = exported->managed.tensor;
        t = {data(i), {dl_cpu, 0}, static_cast<std::int32_t>(axes), field.dtype, shape, strides, 0};
        exported->managed.context = exported.get();
        exported->managed.deleter = detail::drop_exported;
        PyObject* const capsule = PyCapsule_New(&exported->managed, dl_capsule, detail::drop_capsule);
        if (!capsule) throw nb::python_error();
        exported.release();  // the capsule owns it, and with it the block's share
        handed_out_ = i + 1;
        return nb::steal(capsule);
    }

    const std::vector<Field>* fields_;
    std::size_t size_;
    std::vector<Place> places_;
    std::size_t handed_out_ = 0;
};

}  // namespace relive
