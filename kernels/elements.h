// Convert elements of each kind to values: vectors of float32 if that is exact, else of float64.
#pragma once

#include "interface.h"
#include "vectors.h"

extern "C" double hypot(double, double);

namespace {

constexpr double INFINITE = __builtin_inf();

template <class Number> inline Number read(const uint8_t *address) {
  Number number;
  __builtin_memcpy(&number, address, sizeof number);
  return number;
}

inline double real_of(float number) { return number; }
inline double real_of(double number) { return number; }

struct Pair {
  Doubles low, high;
};

// Convert a vector of float32 to two of float64 through memory (see `widen_at`), which stays in the first-level cache.
inline Pair widen_both(Floats values) {
#if defined(__AVX2__)
  alignas(WIDTH) float numbers[FLOATS];
  __builtin_memcpy(numbers, &values, sizeof values);
  __asm__("" : "+m"(numbers));  // prevents compilers from keeping them in the register
  return {widen_at(numbers), widen_at(numbers + DOUBLES)};
#else
  return {widen(lower(values)), widen(upper(values))};
#endif
}

// Elements whose values are float32. `at` returns the vector with a number in a line, `both` the same as float64.
struct Float32 {
  typedef Floats Vector;
  typedef float Value;
  static constexpr int BYTES = 4;
  static constexpr bool IS_NARROW = false;
  static float value(const uint8_t *element) { return read<float>(element); }
  static Floats at(const uint8_t *line, int number) { return load<Floats>(line + number * WIDTH); }
  static Pair both(const uint8_t *line, int number, Floats) {
    return {widen_at(line + number * WIDTH), widen_at(line + number * WIDTH + WIDTH / 2)};
  }
};

struct Float16 {
  typedef Floats Vector;
  typedef float Value;
  static constexpr int BYTES = 2;
  static constexpr bool IS_NARROW = true;
  static float value(const uint8_t *element) { return NarrowHalf::widen(read<uint16_t>(element)); }
  static Floats at(const uint8_t *line, int number) { return widen_halves_at(line + number * (WIDTH / 2)); }
  static Pair both(const uint8_t *, int, Floats values) { return widen_both(values); }
};

struct Brain16 {
  typedef Floats Vector;
  typedef float Value;
  static constexpr int BYTES = 2;
  static constexpr bool IS_NARROW = true;
  static float value(const uint8_t *element) { return bits_as<float>((uint32_t)read<uint16_t>(element) << 16); }
  static Floats at(const uint8_t *line, int number) { return widen_brains(line + number * (WIDTH / 2)); }
  static Pair both(const uint8_t *, int, Floats values) { return widen_both(values); }
};

struct Float8E4M3 {
  typedef Floats Vector;
  typedef float Value;
  static constexpr int BYTES = 1;
  static constexpr bool IS_NARROW = true;
  static float value(const uint8_t *element) { return NarrowE4M3::widen(*element); }
  static Floats at(const uint8_t *line, int number) { return widen_e4m3_at(line + number * (WIDTH / 4)); }
  static Pair both(const uint8_t *, int, Floats values) { return widen_both(values); }
};

struct Float8E5M2 {
  typedef Floats Vector;
  typedef float Value;
  static constexpr int BYTES = 1;
  static constexpr bool IS_NARROW = true;
  static float value(const uint8_t *element) { return NarrowE5M2::widen(*element); }
  static Floats at(const uint8_t *line, int number) { return widen_e5m2_at(line + number * (WIDTH / 4)); }
  static Pair both(const uint8_t *, int, Floats values) { return widen_both(values); }
};

// Elements whose values are float64.
struct Float64 {
  typedef Doubles Vector;
  typedef double Value;
  static constexpr int BYTES = 8;
  static constexpr bool IS_NARROW = false;
  static double value(const uint8_t *element) { return read<double>(element); }
  static Doubles at(const uint8_t *line, int number) { return load<Doubles>(line + number * WIDTH); }
};

template <class Integer, class Stored> struct Integers {
  typedef Doubles Vector;
  typedef double Value;
  static constexpr int BYTES = sizeof(Integer);
  static constexpr bool IS_NARROW = false;
  static double value(const uint8_t *element) { return (double)read<Integer>(element); }
  static Doubles at(const uint8_t *line, int number) {
    return reals_of(load<Stored>(line + number * (int)sizeof(Stored)));
  }
};

typedef Integers<int32_t, HalfInts> Int32;
typedef Integers<uint32_t, HalfWords> UInt32;
typedef Integers<int64_t, Longs> Int64;
typedef Integers<uint64_t, LongWords> UInt64;

// Integers that are small enough for exact sums; `Sum` is the type for the sum of squares of a part.
template <class Integer, class SumOfSquares> struct SmallIntegers {
  typedef Integer Stored;
  typedef SumOfSquares Sum;
  static constexpr int BYTES = sizeof(Integer);
  static constexpr bool IS_NARROW = false;
  static int32_t number(Integer stored) { return stored; }
  static double value(const uint8_t *element) { return read<Integer>(element); }
};

struct Int8 : SmallIntegers<int8_t, int32_t> {
  typedef SignedBytes Vector;
  static constexpr bool IS_SIGNED = true;
#if defined(__AVX2__)
  static Shorts widen(const uint8_t *elements) { return widen_signed_bytes(elements); }
#endif
};

struct UInt8 : SmallIntegers<uint8_t, int64_t> {
  typedef Bytes Vector;
  static constexpr bool IS_SIGNED = false;
#if defined(__AVX2__)
  static Shorts widen(const uint8_t *elements) { return widen_bytes(elements); }
#endif
};

struct Bool : SmallIntegers<uint8_t, int32_t> {  // every byte other than 0 is true
  static int32_t number(uint8_t stored) { return stored != 0; }
  static double value(const uint8_t *element) { return *element != 0; }
};

typedef SmallIntegers<int16_t, int64_t> Int16;
typedef SmallIntegers<uint16_t, int64_t> UInt16;

// NaN if a part is NaN, infinite if a part is infinite and none NaN; at most the largest float64 for finite parts.
template <class Part> struct Complex {
  static constexpr int BYTES = 2 * sizeof(Part);
  static constexpr bool IS_NARROW = false;
  static double value(const uint8_t *element) {
    double real = read<Part>(element), imaginary = read<Part>(element + sizeof(Part));
    if (real != real || imaginary != imaginary) return __builtin_nan("");
    double size = hypot(real, imaginary);
    bool finite = __builtin_fabs(real) < INFINITE && __builtin_fabs(imaginary) < INFINITE;
    return finite && size == INFINITE ? __DBL_MAX__ : size;
  }
};

typedef Complex<float> Complex64;
typedef Complex<double> Complex128;

// Write values as float64.
template <class Element> void widen_each(const uint8_t *elements, int64_t count, double *values) {
  for (int64_t i = 0; i < count; i++) values[i] = Element::value(elements + i * Element::BYTES);
}

template <class Element> void widen_all(const uint8_t *elements, int64_t count, double *values) {
  int64_t done = 0;
  if constexpr (Element::IS_NARROW)
    for (; done + FLOATS <= count; done += FLOATS) {
      Floats found = Element::at(elements + done * Element::BYTES, 0);
      Doubles low = widen(lower(found)), high = widen(upper(found));
      __builtin_memcpy(values + done, &low, sizeof low);
      __builtin_memcpy(values + done + DOUBLES, &high, sizeof high);
    }
  widen_each<Element>(elements + done * Element::BYTES, count - done, values + done);
}

inline void widen_block(Kind kind, const uint8_t *elements, int64_t count, double *values) {
  switch (kind) {
    case FLOAT32: return widen_all<Float32>(elements, count, values);
    case FLOAT16: return widen_all<Float16>(elements, count, values);
    case BFLOAT16: return widen_all<Brain16>(elements, count, values);
    case FLOAT8_E4M3FN: return widen_all<Float8E4M3>(elements, count, values);
    case FLOAT8_E5M2: return widen_all<Float8E5M2>(elements, count, values);
    case FLOAT64: return widen_all<Float64>(elements, count, values);
    case BOOL: return widen_all<Bool>(elements, count, values);
    case INT8: return widen_all<Int8>(elements, count, values);
    case UINT8: return widen_all<UInt8>(elements, count, values);
    case INT16: return widen_all<Int16>(elements, count, values);
    case UINT16: return widen_all<UInt16>(elements, count, values);
    case INT32: return widen_all<Int32>(elements, count, values);
    case UINT32: return widen_all<UInt32>(elements, count, values);
    case INT64: return widen_all<Int64>(elements, count, values);
    case UINT64: return widen_all<UInt64>(elements, count, values);
    case COMPLEX64: return widen_all<Complex64>(elements, count, values);
    case COMPLEX128: return widen_all<Complex128>(elements, count, values);
    case KINDS: return;
  }
}

}  // namespace
