// Where draws come from: a NumPy BitGenerator, through its C interface and under its lock.
#pragma once

#include <nanobind/nanobind.h>

#include "draw.hpp"

namespace relive {

namespace nb = nanobind;

// A source of draws. `source` is a BitGenerator, or with `ask` a function that is asked for one at every draw, since
// NumPy's global generator can be swapped. What belongs to the generator is looked up once.
class Stream {
  public:
    Stream(nb::object source, bool ask) : source_(std::move(source)), ask_(ask) {
        if (!ask_) look_up(source_);
    }

    // The generator, locked as long as this lives.
    class Locked {
      public:
        explicit Locked(Stream& stream) {
            if (stream.ask_) {
                const nb::object generator = call(stream.source_);
                if (!generator.is(stream.generator_)) stream.look_up(generator);
            }
            release_ = stream.release_;
            bits_ = stream.bits_;
            keep_ = stream.generator_;
            call(stream.acquire_);
        }
        ~Locked() {
            PyObject* const done = PyObject_CallNoArgs(release_.ptr());
            if (!done) PyErr_WriteUnraisable(release_.ptr());
            Py_XDECREF(done);
        }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;

        BitGenerator& bits() const noexcept { return *bits_; }

      private:
        nb::object keep_;
        nb::object release_;
        BitGenerator* bits_ = nullptr;
    };

  private:
    static nb::object call(const nb::object& function) {
        PyObject* const result = PyObject_CallNoArgs(function.ptr());
        if (!result) throw nb::python_error();
        return nb::steal(result);
    }

    void look_up(const nb::object& generator) {
        const nb::object capsule = generator.attr("capsule");
        const nb::object lock = generator.attr("lock");
        void* const pointer = PyCapsule_GetPointer(capsule.ptr(), "BitGenerator");
        if (!pointer) throw nb::python_error();
        acquire_ = lock.attr("acquire");
        release_ = lock.attr("release");
        generator_ = generator;
        bits_ = static_cast<BitGenerator*>(pointer);
    }

    nb::object source_;
    bool ask_;
    nb::object generator_;
    nb::object acquire_;
    nb::object release_;
    BitGenerator* bits_ = nullptr;
};

}  // namespace relive
