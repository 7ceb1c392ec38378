// The widest vectors of the instruction set, and operations on them for which compilers have no operators. Everything
// is in an unnamed namespace, because this is compiled once for each instruction set, and the linker must not merge
// functions of different ones.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 64;
#elif defined(__AVX2__)
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif
constexpr int LINE = 64;  // bytes that a loop processes at once, for any width of a vector

// Prefetch distance, large enough for the latency of memory. Hardware prefetching stops at page boundaries.
constexpr int AHEAD_BYTES = 8192;
constexpr int FLOATS = WIDTH / 4, DOUBLES = WIDTH / 8;

#define VECTOR(type, bytes) type __attribute__((vector_size(bytes)))
typedef VECTOR(float, WIDTH) Floats;
typedef VECTOR(double, WIDTH) Doubles;
typedef VECTOR(float, WIDTH / 2) HalfFloats;
typedef VECTOR(int32_t, WIDTH) Ints;
typedef VECTOR(uint32_t, WIDTH) Words;
typedef VECTOR(int64_t, WIDTH) Longs;
typedef VECTOR(uint64_t, WIDTH) LongWords;
typedef VECTOR(int32_t, WIDTH / 2) HalfInts;
typedef VECTOR(uint32_t, WIDTH / 2) HalfWords;
typedef VECTOR(uint8_t, WIDTH) Bytes;
typedef VECTOR(int8_t, WIDTH) SignedBytes;
typedef VECTOR(int16_t, WIDTH) Shorts;
typedef VECTOR(uint16_t, WIDTH) UnsignedShorts;
typedef VECTOR(uint16_t, WIDTH / 2) HalfShorts;
typedef VECTOR(int8_t, WIDTH / 4) QuarterBytes;

template <class Vector> inline Vector load(const void *address) {
  Vector vector;
  __builtin_memcpy(&vector, address, sizeof vector);
  return vector;
}

// Hide the value of a vector from the compiler.
inline void forget(Doubles &vector) {
#if defined(__x86_64__)
  __asm__("" : "+v"(vector));
#elif defined(__aarch64__)
  __asm__("" : "+w"(vector));
#endif
}

template <class To, class From> inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// ---- the smaller and the larger of two numbers; undefined if one is NaN

inline Floats lesser(Floats one, Floats other) {
#if defined(__AVX512F__)
  return (Floats)_mm512_min_ps((__m512)one, (__m512)other);
#elif defined(__AVX2__)
  return (Floats)_mm256_min_ps((__m256)one, (__m256)other);
#elif defined(__x86_64__)
  return (Floats)_mm_min_ps((__m128)one, (__m128)other);
#elif defined(__aarch64__)
  return (Floats)vminq_f32((float32x4_t)one, (float32x4_t)other);
#else
  return one < other ? one : other;
#endif
}

inline Floats greater(Floats one, Floats other) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)one, (__m512)other);
#elif defined(__AVX2__)
  return (Floats)_mm256_max_ps((__m256)one, (__m256)other);
#elif defined(__x86_64__)
  return (Floats)_mm_max_ps((__m128)one, (__m128)other);
#elif defined(__aarch64__)
  return (Floats)vmaxq_f32((float32x4_t)one, (float32x4_t)other);
#else
  return one > other ? one : other;
#endif
}

inline Doubles lesser(Doubles one, Doubles other) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_min_pd((__m512d)one, (__m512d)other);
#elif defined(__AVX2__)
  return (Doubles)_mm256_min_pd((__m256d)one, (__m256d)other);
#elif defined(__x86_64__)
  return (Doubles)_mm_min_pd((__m128d)one, (__m128d)other);
#elif defined(__aarch64__)
  return (Doubles)vminq_f64((float64x2_t)one, (float64x2_t)other);
#else
  return one < other ? one : other;
#endif
}

inline Doubles greater(Doubles one, Doubles other) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_max_pd((__m512d)one, (__m512d)other);
#elif defined(__AVX2__)
  return (Doubles)_mm256_max_pd((__m256d)one, (__m256d)other);
#elif defined(__x86_64__)
  return (Doubles)_mm_max_pd((__m128d)one, (__m128d)other);
#elif defined(__aarch64__)
  return (Doubles)vmaxq_f64((float64x2_t)one, (float64x2_t)other);
#else
  return one > other ? one : other;
#endif
}

#define INTEGERS_WITH(name, Vector, on_512, on_256, on_128, relation)                     \
  inline Vector name(Vector one, Vector other) {                                        \
    return ONE_OF((Vector)on_512((__m512i)one, (__m512i)other),                      \
                     (Vector)on_256((__m256i)one, (__m256i)other),                      \
                     (Vector)on_128((__m128i)one, (__m128i)other), one relation other ? one : other); \
  }
#if defined(__AVX512F__)
#define ONE_OF(on_512, on_256, on_128, otherwise) on_512
#elif defined(__AVX2__)
#define ONE_OF(on_512, on_256, on_128, otherwise) on_256
#elif defined(__x86_64__)
#define ONE_OF(on_512, on_256, on_128, otherwise) on_128
#else
#define ONE_OF(on_512, on_256, on_128, otherwise) otherwise
#endif
INTEGERS_WITH(lesser, SignedBytes, _mm512_min_epi8, _mm256_min_epi8, _mm_min_epi8, <)
INTEGERS_WITH(greater, SignedBytes, _mm512_max_epi8, _mm256_max_epi8, _mm_max_epi8, >)
INTEGERS_WITH(lesser, Bytes, _mm512_min_epu8, _mm256_min_epu8, _mm_min_epu8, <)
INTEGERS_WITH(greater, Bytes, _mm512_max_epu8, _mm256_max_epu8, _mm_max_epu8, >)
INTEGERS_WITH(lesser, Shorts, _mm512_min_epi16, _mm256_min_epi16, _mm_min_epi16, <)
INTEGERS_WITH(greater, Shorts, _mm512_max_epi16, _mm256_max_epi16, _mm_max_epi16, >)
INTEGERS_WITH(lesser, UnsignedShorts, _mm512_min_epu16, _mm256_min_epu16, _mm_min_epu16, <)
INTEGERS_WITH(greater, UnsignedShorts, _mm512_max_epu16, _mm256_max_epu16, _mm_max_epu16, >)

// The sums of groups of eight adjacent bytes.
inline Longs sum_of_bytes(Bytes bytes) {
#if defined(__AVX512F__)
  return (Longs)_mm512_sad_epu8((__m512i)bytes, _mm512_setzero_si512());
#elif defined(__AVX2__)
  return (Longs)_mm256_sad_epu8((__m256i)bytes, _mm256_setzero_si256());
#elif defined(__x86_64__)
  return (Longs)_mm_sad_epu8((__m128i)bytes, _mm_setzero_si128());
#else
  Longs sums = {};
  for (int lane = 0; lane < WIDTH; lane++) sums[lane / 8] += bytes[lane];
  return sums;
#endif
}

// ---- signs are counted from the bits, so that subnormal numbers are right even if a program flushes them to zero

#if defined(__AVX512F__)

typedef __mmask16 SignsOfFloats;
typedef __mmask8 SignsOfDoubles;

// Put a mask in a register that can mask operations (k0 cannot), to avoid a copy.
template <class Mask> inline Mask usable(Mask mask) {
  __asm__("" : "+Yk"(mask));
  return mask;
}

struct SignCounts {
  uint64_t negatives = 0, positives = 0;

  // Returns the negative lanes.
  SignsOfFloats add(Floats values) {
    __m512i bits = (__m512i)values;
    __mmask16 below = usable(_mm512_cmpgt_epu32_mask(bits, _mm512_set1_epi32(INT32_MIN)));
    negatives += (unsigned)_mm_popcnt_u32(below);
    positives += (unsigned)_mm_popcnt_u32(_mm512_cmpgt_epi32_mask(bits, _mm512_setzero_si512()));
    return below;
  }

  SignsOfDoubles add(Doubles values) {
    __m512i bits = (__m512i)values;
    __mmask8 below = usable(_mm512_cmpgt_epu64_mask(bits, _mm512_set1_epi64(INT64_MIN)));
    negatives += (unsigned)_mm_popcnt_u32(below);
    positives += (unsigned)_mm_popcnt_u32(_mm512_cmpgt_epi64_mask(bits, _mm512_setzero_si512()));
    return below;
  }

  void add(const SignCounts &more) {
    negatives += more.negatives;
    positives += more.positives;
  }

  uint64_t negative() const { return negatives; }
  uint64_t positive() const { return positives; }
};

typedef SignCounts SingleSignCounts, DoubleSignCounts;

struct HalfSignCounts : SignCounts {
  using SignCounts::add;

  void add(Shorts bits) {
    negatives += (unsigned)_mm_popcnt_u32(_mm512_cmpgt_epu16_mask((__m512i)bits, _mm512_set1_epi16(INT16_MIN)));
    positives += (unsigned)_mm_popcnt_u32(_mm512_cmpgt_epi16_mask((__m512i)bits, _mm512_setzero_si512()));
  }
};

struct ByteSignCounts : SignCounts {
  using SignCounts::add;

  void add(SignedBytes bits) {
    negatives += (uint64_t)_mm_popcnt_u64(_mm512_cmpgt_epu8_mask((__m512i)bits, _mm512_set1_epi8(INT8_MIN)));
    positives += (uint64_t)_mm_popcnt_u64(_mm512_cmpgt_epi8_mask((__m512i)bits, _mm512_setzero_si512()));
  }
};

inline SignsOfDoubles lower(SignsOfFloats signs) { return (SignsOfDoubles)signs; }
inline SignsOfDoubles upper(SignsOfFloats signs) { return (SignsOfDoubles)_kshiftri_mask16(signs, DOUBLES); }

#else

// Without mask registers, the negative lanes are not kept.
struct Unknown {};
typedef Unknown SignsOfFloats;
typedef Unknown SignsOfDoubles;
inline SignsOfDoubles lower(SignsOfFloats) { return {}; }
inline SignsOfDoubles upper(SignsOfFloats) { return {}; }

// Vector comparisons are -1 where true. Counts of a part do not overflow a lane. Zeros are counted instead of negative
// numbers, because that needs no constant in a register.
template <class Integers, class Integer> struct SignLanes {
  Integers zeros = {}, positives = {};
  uint64_t seen = 0;

  void add_bits(Integers bits) {
    zeros -= (Integers)(bits + bits == 0);
    positives -= (Integers)(bits > 0);
    seen += LANES;
  }

  void add(const SignLanes &more) {
    zeros += more.zeros;
    positives += more.positives;
    seen += more.seen;
  }

  uint64_t negative() const { return seen - sum(zeros) - sum(positives); }
  uint64_t positive() const { return sum(positives); }

 private:
  static constexpr int LANES = WIDTH / (int)sizeof(Integer);

  static uint64_t sum(Integers counts) {
    uint64_t total = 0;
    for (int lane = 0; lane < LANES; lane++) total += (uint64_t)counts[lane];
    return total;
  }
};

struct HalfSignCounts : SignLanes<Shorts, int16_t> {
  using SignLanes::add;
  void add(Shorts bits) { add_bits(bits); }
};

// For bytes. A lane counts up to 255 vectors, enough for a block; totals over blocks use wider lanes.
struct ByteSignCounts {
  Bytes zeros = {}, positives = {};
  Longs all_zeros = {}, all_positives = {};
  uint64_t seen = 0;

  void add(SignedBytes bits) {
    zeros -= (Bytes)(bits + bits == 0);
    positives -= (Bytes)(bits > 0);
    seen += WIDTH;
  }

  void add(const ByteSignCounts &more) {
    all_zeros += more.all_zeros + sum_of_bytes(more.zeros);
    all_positives += more.all_positives + sum_of_bytes(more.positives);
    seen += more.seen;
  }

  uint64_t negative() const { return seen - sum(all_zeros, zeros) - positive(); }
  uint64_t positive() const { return sum(all_positives, positives); }

 private:
  static uint64_t sum(Longs counts, Bytes more) {
    uint64_t total = 0;
    counts += sum_of_bytes(more);
    for (int lane = 0; lane < DOUBLES; lane++) total += (uint64_t)counts[lane];
    return total;
  }
};

struct SingleSignCounts : SignLanes<Ints, int32_t> {
  using SignLanes::add;
  SignsOfFloats add(Floats values) {
    add_bits((Ints)values);
    return {};
  }
};

struct DoubleSignCounts : SignLanes<Longs, int64_t> {
  using SignLanes::add;
  SignsOfDoubles add(Doubles values) {
    add_bits((Longs)values);
    return {};
  }
};

#endif

template <class Vector> struct SignsOf;
template <> struct SignsOf<Floats> : SingleSignCounts {};
template <> struct SignsOf<Doubles> : DoubleSignCounts {};

// ---- conversions; all are exact

inline Doubles add_some(Doubles to, Doubles values, SignsOfDoubles which) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_mask_add_pd((__m512d)to, which, (__m512d)to, (__m512d)values);
#else
  (void)which;
  return to + values;
#endif
}

inline Doubles magnitude(Doubles values) { return (Doubles)((Longs)values & INT64_MAX); }

#if defined(__AVX512F__)
inline Ints add_products(Shorts one, Shorts other) { return (Ints)_mm512_madd_epi16((__m512i)one, (__m512i)other); }
inline SignedBytes magnitude(SignedBytes values) { return (SignedBytes)_mm512_abs_epi8((__m512i)values); }
inline Shorts widen_signed_bytes(const uint8_t *address) {
  return (Shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)address));
}
inline Shorts widen_bytes(const uint8_t *address) {
  return (Shorts)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)address));
}
#elif defined(__AVX2__)
inline Ints add_products(Shorts one, Shorts other) { return (Ints)_mm256_madd_epi16((__m256i)one, (__m256i)other); }
inline SignedBytes magnitude(SignedBytes values) { return (SignedBytes)_mm256_abs_epi8((__m256i)values); }
inline Shorts widen_signed_bytes(const uint8_t *address) {
  return (Shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)address));
}
inline Shorts widen_bytes(const uint8_t *address) {
  return (Shorts)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)address));
}
#endif
inline Bytes magnitude(Bytes values) { return values; }

// Intrinsics, because compilers would convert vectors in pieces.
inline Doubles widen(HalfFloats values) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtps_pd((__m256)values);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtps_pd((__m128)values);
#else
  return __builtin_convertvector(values, Doubles);
#endif
}

// Widening half a vector of float32 takes one operation from memory, and two and a half from a register.
inline Doubles widen_at(const void *address) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtps_pd(_mm256_loadu_ps((const float *)address));
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtps_pd(_mm_loadu_ps((const float *)address));
#else
  return widen(load<HalfFloats>(address));
#endif
}

inline Doubles reals_of(HalfInts values) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtepi32_pd((__m256i)values);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtepi32_pd((__m128i)values);
#else
  return __builtin_convertvector(values, Doubles);
#endif
}

inline Doubles reals_of(HalfWords values) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtepu32_pd((__m256i)values);
#else
  return reals_of((HalfInts)(values ^ 0x80000000)) + 0x1p31;
#endif
}

inline Doubles reals_of(Longs values) { return __builtin_convertvector(values, Doubles); }
inline Doubles reals_of(LongWords values) { return __builtin_convertvector(values, Doubles); }

inline Words widen_shorts(const uint8_t *address) {
#if defined(__AVX512F__)
  return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)address));
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)address));
#elif defined(__x86_64__)
  return (Words)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)address), _mm_setzero_si128());
#else
  return __builtin_convertvector(load<HalfShorts>(address), Words);
#endif
}

inline HalfFloats lower(Floats values) {
#if defined(__AVX512F__)
  return (HalfFloats)_mm512_castps512_ps256((__m512)values);
#elif defined(__AVX2__)
  return (HalfFloats)_mm256_castps256_ps128((__m256)values);
#else
  return HalfFloats{values[0], values[1]};
#endif
}

inline HalfFloats upper(Floats values) {
#if defined(__AVX512F__)
  return (HalfFloats)_mm512_extractf32x8_ps((__m512)values, 1);
#elif defined(__AVX2__)
  return (HalfFloats)_mm256_extractf128_ps((__m256)values, 1);
#else
  return HalfFloats{values[2], values[3]};
#endif
}

// Floating-point numbers with fewer bits than float32; those whose bits without the sign are at least `NOT_FINITE` are
// infinite or NaN. Normal numbers get float32's exponent bias; a subnormal number gets a hidden one, which is then
// subtracted: that avoids subnormal float32, which a program may flush to zero.
template <int EXPONENT_BITS, int MANTISSA_BITS, uint32_t NOT_FINITE> struct Narrow {
  static constexpr int SHIFT = 23 - MANTISSA_BITS, SIGN_BIT = EXPONENT_BITS + MANTISSA_BITS;
  static constexpr uint32_t MAGNITUDE = (1u << SIGN_BIT) - 1, NORMAL = 1u << 23, BEYOND = NOT_FINITE << SHIFT;
  static constexpr uint32_t BIAS = (128u - (1u << (EXPONENT_BITS - 1))) << 23, HIDDEN = BIAS + NORMAL;

  static float widen(uint32_t bits) {
    uint32_t magnitude = (bits & MAGNITUDE) << SHIFT, sign = (bits >> SIGN_BIT) << 31, value = magnitude + BIAS;
    if (magnitude < NORMAL) value = bits_as<uint32_t>(bits_as<float>(magnitude + HIDDEN) - bits_as<float>(HIDDEN));
    if (magnitude >= BEYOND) value |= 0x7F800000;
    return bits_as<float>(sign | value);
  }

  static Floats widen(Words bits) {
    Words magnitude = (bits & MAGNITUDE) << SHIFT;
    Words subnormal = (Words)((Floats)(magnitude + HIDDEN) - bits_as<float>(HIDDEN));
    Words small = (Words)(magnitude < NORMAL), beyond = (Words)(magnitude >= BEYOND);
    Words value = (small & subnormal) | (~small & (magnitude + BIAS));
    return (Floats)(value | (beyond & 0x7F800000) | (bits >> SIGN_BIT) << 31);
  }
};

typedef Narrow<5, 10, 0x7C00> NarrowHalf;
typedef Narrow<5, 2, 0x7C> NarrowE5M2;
typedef Narrow<4, 3, 0x7F> NarrowE4M3;  // no infinities; only a magnitude with all bits set is NaN

#if defined(__AVX2__) || defined(__aarch64__)
#define HAS_HALVES
inline Floats widen_halves(HalfShorts halves) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)halves);
#elif defined(__AVX2__)
  return (Floats)_mm256_cvtph_ps((__m128i)halves);
#else
  return (Floats)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)halves));
#endif
}
#endif

inline Floats widen_halves_at(const uint8_t *address) {
#if defined(HAS_HALVES)
  return widen_halves(load<HalfShorts>(address));
#else
  return NarrowHalf::widen(widen_shorts(address));
#endif
}

// Sign-extend bytes to 16-bit integers.
inline HalfShorts shorts_of_bytes(const uint8_t *address) {
#if defined(__AVX512F__)
  return (HalfShorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)address));
#elif defined(__AVX2__)
  return (HalfShorts)_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)address));
#else
  return __builtin_convertvector(load<QuarterBytes>(address), HalfShorts);
#endif
}

inline Words words_of_bytes(const uint8_t *address) {
#if defined(__x86_64__) && !defined(__AVX2__)
  return (Words)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(load<int32_t>(address)));
#else
  return __builtin_convertvector(load<QuarterBytes>(address), Words) & 0xFF;
#endif
}

// A float8_e5m2 is the upper byte of a float16.
inline Floats widen_e5m2_at(const uint8_t *address) {
#if defined(HAS_HALVES)
  return widen_halves(shorts_of_bytes(address) << 8);
#else
  return NarrowE5M2::widen(words_of_bytes(address));
#endif
}

// The bits of an e4m3fn as a float16 are smaller by the difference of the biases, and subnormal numbers stay subnormal.
// NaN get another exponent bit, by a carry that occurs for no other number.
inline Floats widen_e4m3_at(const uint8_t *address) {
#if defined(HAS_HALVES)
  HalfShorts halves = shorts_of_bytes(address) << 7 & 0xBFFF;
  halves |= (halves + 0x80) & 0x4000;
  return widen_halves(halves) * 0x1p8f;
#else
  return NarrowE4M3::widen(words_of_bytes(address));
#endif
}

inline Floats widen_brains(const uint8_t *address) {
  return (Floats)(widen_shorts(address) << 16);
}

// ---- sums over lanes, in pairs

template <class Number, class Sum = Number, class Vector = void> inline Sum sum_of(Vector vector) {
  constexpr int lanes = sizeof(Vector) / sizeof(Number);
  Sum numbers[lanes];
  for (int lane = 0; lane < lanes; lane++) numbers[lane] = vector[lane];
  for (int half = lanes / 2; half; half /= 2)
    for (int lane = 0; lane < half; lane++) numbers[lane] += numbers[lane + half];
  return numbers[0];
}

template <class Number, class Vector> inline Number least_of(Vector vector) {
  constexpr int lanes = sizeof(Vector) / sizeof(Number);
  Number numbers[lanes];
  __builtin_memcpy(numbers, &vector, sizeof vector);
  for (int half = lanes / 2; half; half /= 2)
    for (int lane = 0; lane < half; lane++)
      numbers[lane] = numbers[lane] < numbers[lane + half] ? numbers[lane] : numbers[lane + half];
  return numbers[0];
}

template <class Number, class Vector> inline Number most_of(Vector vector) { return -least_of<Number>(-vector); }

// The product of the two halves of each 64-bit word.
inline LongWords product_of_halves(LongWords words) {
#if defined(__AVX512F__)
  return (LongWords)_mm512_mul_epu32((__m512i)words, _mm512_srli_epi64((__m512i)words, 32));
#elif defined(__AVX2__)
  return (LongWords)_mm256_mul_epu32((__m256i)words, _mm256_srli_epi64((__m256i)words, 32));
#elif defined(__x86_64__)
  return (LongWords)_mm_mul_epu32((__m128i)words, _mm_srli_epi64((__m128i)words, 32));
#elif defined(__aarch64__)
  uint64x2_t halves = (uint64x2_t)words;
  return (LongWords)vmull_u32(vmovn_u64(halves), vshrn_n_u64(halves, 32));
#else
  return (words & 0xFFFFFFFF) * (words >> 32);
#endif
}

}  // namespace
