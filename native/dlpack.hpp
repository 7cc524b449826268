// The DLPack structures (https://dmlc.github.io/dlpack, version 0): how arrays come in and batches go out without
// a link to NumPy or torch.
#pragma once

#include <cstdint>

namespace relive {

struct DLDevice {
    std::int32_t type;  // 1: CPU
    std::int32_t id;
};

struct DLType {
    std::uint8_t code;  // 0 int, 1 uint, 2 float, 6 bool
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLType dtype;
    std::int64_t* shape;
    std::int64_t* strides;  // in items; may be null for a compact array
    std::uint64_t byte_offset;
};

struct DLManagedTensor {
    DLTensor tensor;
    void* context;
    void (*deleter)(DLManagedTensor* self);
};

inline constexpr std::int32_t dl_cpu = 1;
inline constexpr std::uint8_t dl_float = 2;
inline constexpr std::uint8_t dl_bool = 6;
inline constexpr const char* dl_capsule = "dltensor";

inline bool operator==(const DLType& a, const DLType& b) noexcept {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace relive
