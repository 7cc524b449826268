// Rows of time-major rollout arrays, by the flat environment-major index that the seed module shuffles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "bytes.hpp"

namespace relive {

// Item i of `out` is source[index % steps][index / steps] of an array (stored steps, envs, item), index = indices[i].
inline void take_env_major(const std::byte* source, std::size_t item, std::size_t steps, std::size_t envs,
                           const std::int64_t* indices, std::size_t size, std::byte* out) {
    const std::size_t total = steps * envs;
    for (std::size_t i = 0; i < size; ++i) {
        const auto index = static_cast<std::size_t>(indices[i]);
        if (index >= total) throw std::out_of_range("index beyond the rollout");
        copy_bytes(out + i * item, source + ((index % steps) * envs + index / steps) * item, item);
    }
}

}  // namespace relive
