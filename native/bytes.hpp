// Copying and comparing the small, odd-sized fields that steps are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace relive {

namespace detail {

template <std::size_t N>
inline void move_block(std::byte* to, const std::byte* from) noexcept {
    std::memcpy(to, from, N);
}

}  // namespace detail

// A field is a few dozen bytes, where a call of memcpy costs more than its work. Blocks of 16 and
// one overlapping last block cover every size without a loop over single bytes.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) noexcept {
    using detail::move_block;
    if (size > 512) {
        std::memcpy(to, from, size);
    } else if (size >= 16) {
        const std::byte* const last = from + size - 16;
        std::byte* const last_to = to + size - 16;
        while (from < last) {
            move_block<16>(to, from);
            from += 16;
            to += 16;
        }
        move_block<16>(last_to, last);
    } else if (size >= 8) {
        move_block<8>(to, from);
        move_block<8>(to + size - 8, from + size - 8);
    } else if (size >= 4) {
        move_block<4>(to, from);
        move_block<4>(to + size - 4, from + size - 4);
    } else {
        for (std::size_t i = 0; i < size; ++i) to[i] = from[i];
    }
}

// Copies past the caches, for batches so large that their beginning would be gone from them before the end is written.
// Whoever streams calls `end_of_stream` before others may look.
inline void stream_bytes(std::byte* to, const std::byte* from, std::size_t size) noexcept {
#if defined(__SSE2__)
    if (size % 16 == 0 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        for (std::size_t i = 0; i < size; i += 16) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
        }
        return;
    }
#endif
    std::memcpy(to, from, size);
}

inline void end_of_stream() noexcept {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

template <class T>
inline T load(const std::byte* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

template <class T>
inline void store(std::byte* to, T value) noexcept {
    std::memcpy(to, &value, sizeof(T));
}

inline bool equal_bytes(const std::byte* a, const std::byte* b, std::size_t size) noexcept {
    if (size > 512 || size < 8) return std::memcmp(a, b, size) == 0;
    std::uint64_t difference = load<std::uint64_t>(a + size - 8) ^ load<std::uint64_t>(b + size - 8);
    for (std::size_t i = 0; i + 8 < size; i += 8) difference |= load<std::uint64_t>(a + i) ^ load<std::uint64_t>(b + i);
    return difference == 0;
}

// Asks for the cache lines of [from, from + size) ahead of their use. GCC 12 takes a function that does nothing else
// for one without effect and drops its calls; those that only prefetch must be inlined before it looks.
#if defined(__GNUC__) || defined(__clang__)
[[gnu::always_inline]]
#endif
inline void prefetch(const std::byte* from, std::size_t size) noexcept {
#if defined(__GNUC__) || defined(__clang__)
    const auto begin = reinterpret_cast<std::uintptr_t>(from) & ~std::uintptr_t{63};
    const auto end = reinterpret_cast<std::uintptr_t>(from) + size;
    for (auto line = begin; line < end; line += 64) __builtin_prefetch(reinterpret_cast<const void*>(line));
#else
    (void)from;
    (void)size;
#endif
}

}  // namespace relive
