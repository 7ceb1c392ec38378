// Detect whether the processor and the operating system support the instructions that this file is compiled for. Not
// all compilers link their own function for that.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace {

#if defined(__x86_64__)

struct Processor {
  uint32_t basic = 0, extended = 0;  // leaf 1, ecx; leaf 7, ebx
  uint64_t saved = 0;                // registers that the operating system saves on a context switch

  Processor() {
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) basic = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) extended = b;
    if (basic & (1u << 27)) {
      __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
      saved = (uint64_t)d << 32 | a;
    }
  }

  bool has(uint32_t basic_bits, uint32_t extended_bits, uint64_t registers) const {
    return (basic & basic_bits) == basic_bits && (extended & extended_bits) == extended_bits &&
           (saved & registers) == registers;
  }
};

constexpr uint32_t SSE42 = 1u << 20 | 1u << 23;                              // with popcnt
constexpr uint32_t FMA_F16C = 1u << 12 | 1u << 29;
constexpr uint32_t AVX2_BMI = 1u << 5 | 1u << 3 | 1u << 8;
constexpr uint32_t AVX512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;       // F, DQ, BW, VL
constexpr uint64_t YMM = 0x6, ZMM = 0xE6;

#endif

bool is_supported() {
#if defined(__AVX512F__)
  return Processor().has(SSE42 | FMA_F16C, AVX2_BMI | AVX512, ZMM);
#elif defined(__AVX2__)
  return Processor().has(SSE42 | FMA_F16C, AVX2_BMI, YMM);
#elif defined(__SSE4_2__)
  return Processor().has(SSE42, 0, 0);
#else
  return true;
#endif
}

}  // namespace
