// Breaks: places where a step does not follow on from the step before it, although no end is said there. Data without
// flags for time limits is full of them, and so is what is copied from several sources.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "bytes.hpp"
#include "dlpack.hpp"

namespace relive {

// What is done with the breaks of the calls that it minds, and how many there were.
struct Breaks {
    bool detect;       // end the episode before each, as Timeline::interrupt does; else only count those of steps kept
    double tolerance;  // how far apart numbers may be that count as the same
    std::int64_t found = 0;
};

// Whether two arrays of `bytes` bytes hold the same numbers: no two further apart than `tolerance`, NaN where NaN is.
using Alike = bool (*)(const std::byte* a, const std::byte* b, std::size_t bytes, double tolerance);

namespace detail {

struct Half {
    std::uint16_t bits;
};

inline double number(Half half) noexcept {
    const double sign = (half.bits & 0x8000U) != 0 ? -1.0 : 1.0;
    const int exponent = (half.bits >> 10U) & 0x1F;
    const double fraction = half.bits & 0x3FFU;
    if (exponent == 0x1F) return fraction == 0.0 ? sign * HUGE_VAL : std::nan("");
    return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024.0 + fraction, exponent - 25);
}
inline double number(float value) noexcept { return value; }
inline double number(double value) noexcept { return value; }

template <class T>
bool is_near(T a, T b, double tolerance) noexcept {
    if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        const auto one = static_cast<Unsigned>(a);
        const auto other = static_cast<Unsigned>(b);
        return static_cast<double>(static_cast<Unsigned>(a > b ? one - other : other - one)) <= tolerance;
    } else {
        const double one = number(a);
        const double other = number(b);
        return one == other || std::fabs(one - other) <= tolerance || (std::isnan(one) && std::isnan(other));
    }
}

template <class T>
bool are_near(const std::byte* a, const std::byte* b, std::size_t bytes, double tolerance) {
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
        if (!is_near(load<T>(a + i), load<T>(b + i), tolerance)) return false;
    }
    return true;
}

}  // namespace detail

inline Alike alike_of(const DLType& dtype) {
    const bool is_signed = dtype.code == 0;
    switch (dtype.bits) {
        case 8:
            return is_signed ? detail::are_near<std::int8_t> : detail::are_near<std::uint8_t>;  // and bool
        case 16:
            if (dtype.code == dl_float) return detail::are_near<detail::Half>;
            return is_signed ? detail::are_near<std::int16_t> : detail::are_near<std::uint16_t>;
        case 32:
            if (dtype.code == dl_float) return detail::are_near<float>;
            return is_signed ? detail::are_near<std::int32_t> : detail::are_near<std::uint32_t>;
        case 64:
            if (dtype.code == dl_float) return detail::are_near<double>;
            return is_signed ? detail::are_near<std::int64_t> : detail::are_near<std::uint64_t>;
        default:
            throw std::invalid_argument("a leaf has numbers of 8, 16, 32 or 64 bits");
    }
}

}  // namespace relive
