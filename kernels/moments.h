// Compute sums, extremes, signs and the hash in one pass over a part of a tensor.
//
// A part is scanned block by block, so that a non-finite element only invalidates the sums of its block: these are
// dropped, and the finite elements of the block are gathered and scanned separately.
//
// Deviations from the mean are summed in double precision as s2 - s1**2 / n with s1 = sum(x), s2 = sum(x**2). If the
// mean is so far from zero that the subtraction would lose more than four bits, the part, which is in the cache, is
// summed again around its mean. Sums of small integers are exact.
#pragma once

#include "elements.h"
#include "gather.h"
#include "hash.h"
#include "interface.h"
#include "rows.h"
#include "vectors.h"

namespace {

constexpr double MOST_CANCELLED = 16;

inline bool is_below_zero(float value) { return bits_as<uint32_t>(value) > 0x80000000u; }
inline bool is_above_zero(float value) { return bits_as<int32_t>(value) > 0; }
inline bool is_below_zero(double value) { return bits_as<uint64_t>(value) > 0x8000000000000000u; }
inline bool is_above_zero(double value) { return bits_as<int64_t>(value) > 0; }

// Totals of finite elements, over all lanes.
struct Totals {
  double total = 0, absolute = 0, squares = 0, minimum = INFINITE, maximum = -INFINITE;
  int64_t negative = 0, positive = 0;

  template <class Value> void add(Value stored) {
    double value = stored;
    total += value;
    absolute += __builtin_fabs(value);
    squares += value * value;
    minimum = value < minimum ? value : minimum;
    maximum = value > maximum ? value : maximum;
    negative += is_below_zero(stored);
    positive += is_above_zero(stored);
  }

  void add(const Totals &more) {
    total += more.total;
    absolute += more.absolute;
    squares += more.squares;
    minimum = more.minimum < minimum ? more.minimum : minimum;
    maximum = more.maximum > maximum ? more.maximum : maximum;
    negative += more.negative;
    positive += more.positive;
  }
};

// `part` is the sum of the magnitudes or, if the negative lanes are known, the sum of the negative values.
template <bool BELOW_ZERO> struct Sums {
  Doubles total = {}, part = {}, squares = {};

  // Processors have separate units for addition and for multiply-add. If there is a register left for it, `one`
  // distributes the work over both.
  void add(Doubles values, SignsOfDoubles signs, Doubles one) {
    total = WIDTH == 64 ? values * one + total : values + total;
    if constexpr (BELOW_ZERO)
      part = add_some(part, values, signs);
    else
      part += magnitude(values);
    squares += values * values;
  }

  Doubles absolute() const { return BELOW_ZERO ? total - 2 * part : part; }

  void add(const Sums &more) {
    total += more.total;
    part += more.part;
    squares += more.squares;
  }
};

// Extremes and signs from the values of elements.
template <class Element> struct ValuesSeen {
  typedef typename Element::Vector Vector;
  typedef typename Element::Value Value;
  Vector low = Vector{} + (Value)INFINITE, high = Vector{} - (Value)INFINITE;
  SignsOf<Vector> signs;

  void add_line(const uint8_t *) {}

  auto add(Vector values) {
    low = lesser(values, low);
    high = greater(values, high);
    return signs.add(values);
  }

  void add(const ValuesSeen &more) {
    low = lesser(more.low, low);
    high = greater(more.high, high);
    signs.add(more.signs);
  }

  void put_into(Totals &totals) const {
    totals.minimum = least_of<Value>(low);
    totals.maximum = most_of<Value>(high);
    totals.negative = (int64_t)signs.negative();
    totals.positive = (int64_t)signs.positive();
  }
};

template <int BYTES> struct Bits;

template <> struct Bits<2> {
  typedef int16_t Signed;
  typedef uint16_t Unsigned;
  typedef Shorts SignedLanes;
  typedef UnsignedShorts UnsignedLanes;
  typedef HalfSignCounts Signs;
};

template <> struct Bits<1> {
  typedef int8_t Signed;
  typedef uint8_t Unsigned;
  typedef SignedBytes SignedLanes;
  typedef Bytes UnsignedLanes;
  typedef ByteSignCounts Signs;
};

static_assert(BLOCK / WIDTH <= UINT8_MAX, "signs of the bytes of a block are counted in bytes");

// Extremes and signs of floating-point numbers of 16 and 8 bits from their bits, because a vector has more of these
// than of values. As unsigned integers, negative numbers sort last, with the smallest at the end; as signed integers
// they sort first.
template <class Element> struct BitsSeen {
  typedef Bits<Element::BYTES> Of;
  typedef typename Of::Signed Signed;
  typedef typename Of::Unsigned Unsigned;
  typedef typename Of::SignedLanes SignedLanes;
  typedef typename Of::UnsignedLanes UnsignedLanes;
  static constexpr Unsigned SIGN = (Unsigned)(1u << (8 * sizeof(Unsigned) - 1));
  SignedLanes greatest = SignedLanes{} + (Signed)SIGN;
  UnsignedLanes last = {}, first = ~UnsignedLanes{};
  typename Of::Signs signs;

  void add_line(const uint8_t *line) {
    for (int at = 0; at < LINE; at += WIDTH) {
      SignedLanes bits = load<SignedLanes>(line + at);
      greatest = greater(bits, greatest);
      last = greater((UnsignedLanes)bits, last);
      first = lesser((UnsignedLanes)bits, first);
      signs.add(bits);
    }
  }

  SignsOfFloats add(Floats) { return {}; }

  void add(const BitsSeen &more) {
    greatest = greater(more.greatest, greatest);
    last = greater(more.last, last);
    first = lesser(more.first, first);
    signs.add(more.signs);
  }

  void put_into(Totals &totals) const {
    Unsigned begin = least_of<Unsigned>(first), end = (Unsigned)~least_of<Unsigned>(~last);
    Signed most = (Signed)~least_of<Signed>(~greatest);
    if (begin > end) return;  // there were no lines
    Unsigned highest = most >= 0 ? (Unsigned)most : begin, lowest = end & SIGN ? end : begin;
    totals.minimum = Element::value((const uint8_t *)&lowest);
    totals.maximum = Element::value((const uint8_t *)&highest);
    totals.negative = (int64_t)signs.negative();
    totals.positive = (int64_t)signs.positive();
  }
};

template <class Element> struct Seen : ValuesSeen<Element> {};
template <> struct Seen<Float16> : BitsSeen<Float16> {};
template <> struct Seen<Brain16> : BitsSeen<Brain16> {};
template <> struct Seen<Float8E4M3> : BitsSeen<Float8E4M3> {};
template <> struct Seen<Float8E5M2> : BitsSeen<Float8E5M2> {};

// Totals of finite elements, in lanes.
template <class Element> struct Lanes {
  static constexpr int ITEMS = LINE / Element::BYTES;
  static constexpr int VECTORS = ITEMS * (int)sizeof(typename Element::Value) / WIDTH;
  static constexpr bool KNOWS_SIGNS = WIDTH == 64 && !Element::IS_NARROW;
  Sums<KNOWS_SIGNS> sums[2];  // two independent chains of additions
  Seen<Element> seen;

  template <bool HASHED> void add_lines(const uint8_t *block, int64_t lines, BlockHash &hash) {
    Doubles one = Doubles{} + 1;
    forget(one);
    for (int64_t line = 0; line < lines; line++) {
      const uint8_t *here = block + line * LINE;
      __builtin_prefetch(here + AHEAD_BYTES);
      seen.add_line(here);
#pragma GCC unroll 4
      for (int number = 0; number < VECTORS; number++) {
        auto values = Element::at(here, number);
        auto signs = seen.add(values);
        if constexpr (sizeof(typename Element::Value) == 4) {
          Pair both = Element::both(here, number, values);
          sums[0].add(both.low, lower(signs), one);
          sums[1].add(both.high, upper(signs), one);
        } else {
          sums[number % 2].add(values, signs, one);
        }
      }
      if (HASHED) hash.add_line(here, line);
    }
  }

  bool is_finite() const {
    Longs below = (Longs)(sums[0].absolute() + sums[1].absolute() < INFINITE);
    return least_of<int64_t>(-below) != 0;
  }

  void add(const Lanes &more) {
    sums[0].add(more.sums[0]);
    sums[1].add(more.sums[1]);
    seen.add(more.seen);
  }

  Totals together() const {
    Totals totals;
    totals.total = sum_of<double>(sums[0].total + sums[1].total);
    totals.absolute = sum_of<double>(sums[0].absolute() + sums[1].absolute());
    totals.squares = sum_of<double>(sums[0].squares + sums[1].squares);
    seen.put_into(totals);
    return totals;
  }
};

template <class Element> Totals totals_of_finite(const uint8_t *elements, int64_t count) {
  Lanes<Element> lanes;
  BlockHash none;
  int64_t lines = count / lanes.ITEMS;
  lanes.template add_lines<false>(elements, lines, none);
  Totals totals = lanes.together();
  for (int64_t i = lines * lanes.ITEMS; i < count; i++) totals.add(Element::value(elements + i * Element::BYTES));
  return totals;
}

// Copy the finite values, count the others, return the number copied; branchless, because NaN would be mispredicted.
template <class Element, class Value>
int64_t keep_finite(const uint8_t *block, int64_t count, Value *kept, Counts &counts) {
  int64_t finite = 0, above = 0, below = 0;
  for (int64_t i = 0; i < count; i++) {
    Value value = Element::value(block + i * Element::BYTES);
    kept[finite] = value;
    finite += __builtin_fabs((double)value) < INFINITE;
    above += value == (Value)INFINITE;
    below += value == (Value)-INFINITE;
  }
  counts.positive_infinite += above;
  counts.negative_infinite += below;
  counts.nan += count - finite - above - below;
  return finite;
}

template <class Element> Totals totals_with_others(const uint8_t *block, int64_t count, Counts &counts) {
  typename Element::Value kept[BLOCK];
  int64_t finite = keep_finite<Element>(block, count, kept, counts);
  counts.finite += finite;
  if constexpr (sizeof(kept[0]) == 4)
    return totals_of_finite<Float32>((const uint8_t *)kept, finite);
  else
    return totals_of_finite<Float64>((const uint8_t *)kept, finite);
}

// Sum of the squared deviations of the finite elements, computed around an approximate mean.
template <class Element> double deviations_around(const Source &source, int64_t count, double mean) {
  double total = 0, squares = 0, values[BLOCK];
  int64_t finite = 0;
  for (int64_t done = 0; done < count; done += BLOCK) {
    int64_t some = count - done < BLOCK ? count - done : BLOCK;
    widen_all<Element>(source.at(done, some, Element::BYTES), some, values);
    Doubles totals = {}, square = {};
    int64_t i = 0;
    for (; i < some; i++) values[i] = __builtin_fabs(values[i]) < INFINITE ? (finite++, values[i] - mean) : 0;
    for (i = 0; i + DOUBLES <= some; i += DOUBLES) {
      Doubles deviations = load<Doubles>(values + i);
      totals += deviations;
      square += deviations * deviations;
    }
    total += sum_of<double>(totals);
    squares += sum_of<double>(square);
    for (; i < some; i++) {
      total += values[i];
      squares += values[i] * values[i];
    }
  }
  return squares - total * (total / finite);
}

// Convert the totals of a part to a row; the elements can be read once more.
template <class Element> void finish(const Source &source, int64_t count, const Totals &totals, Row &row) {
  double finite = (double)row.counts.finite, total = totals.total, absolute = totals.absolute;
  double spread = totals.squares - total * (total / finite);
  if (totals.minimum == totals.maximum) {
    spread = 0;
    total = totals.minimum * finite;
    absolute = __builtin_fabs(total);
  } else if (!(spread * MOST_CANCELLED >= totals.squares)) {
    spread = deviations_around<Element>(source, count, total / finite);
  }
  row.reals = {total, absolute, spread > 0 ? spread : 0, totals.minimum, totals.maximum};
  row.counts.negative = totals.negative;
  row.counts.positive = totals.positive;
}

template <class Element, bool HASHED>
void scan_floats(const Source &source, int64_t count, int64_t number, Row &row) {
  Lanes<Element> lanes;
  Totals rest;
  for (int64_t done = 0; done < count; done += BLOCK, number++) {
    int64_t some = count - done < BLOCK ? count - done : BLOCK, lines = some / lanes.ITEMS;
    const uint8_t *block = source.at(done, some, Element::BYTES);
    Lanes<Element> found;
    Totals behind;
    BlockHash hash;
    found.template add_lines<HASHED>(block, lines, hash);
    for (int64_t i = lines * lanes.ITEMS; i < some; i++) behind.add(Element::value(block + i * Element::BYTES));
    if (HASHED) {
      hash.add_rest(block + lines * LINE, (some - lines * lanes.ITEMS) * Element::BYTES, lines);
      row.counts.hash += hash.of_block(number);
    }
    if (found.is_finite() && behind.absolute < INFINITE) {  // also false if a sum overflowed
      lanes.add(found);
      rest.add(behind);
      row.counts.finite += some;
    } else {
      rest.add(totals_with_others<Element>(block, some, row.counts));
    }
  }
  rest.add(lanes.together());
  if (row.counts.finite) finish<Element>(source, count, rest, row);
}

inline uint64_t hash_of(const uint8_t *bytes, int64_t size, int64_t block_bytes, int64_t number) {
  uint64_t total = 0;
  for (int64_t done = 0; done < size; done += block_bytes, number++) {
    int64_t some = size - done < block_bytes ? size - done : block_bytes, lines = some / LINE;
    BlockHash hash;
    for (int64_t line = 0; line < lines; line++) hash.add_line(bytes + done + line * LINE, line);
    hash.add_rest(bytes + done + lines * LINE, some - lines * LINE, lines);
    total += hash.of_block(number);
  }
  return total;
}

struct ExactTotals {
  int64_t total = 0, absolute = 0, squares = 0, negative = 0, positive = 0;
  int32_t minimum = INT32_MAX, maximum = INT32_MIN;

  void reach(int32_t value) {
    minimum = value < minimum ? value : minimum;
    maximum = value > maximum ? value : maximum;
  }
};

#if defined(__AVX2__)

// Return the number of 8-bit integers that were added: those in whole lines.
template <class Element> int64_t add_bytes(const uint8_t *elements, int64_t count, ExactTotals &totals) {
  typedef typename Element::Vector Vector;
  int64_t size = count / LINE * LINE;
  if (!size) return 0;
  Longs absolute = {}, shifted = {}, negative = {}, positive = {};
  Ints squares = {};
  Vector low = load<Vector>(elements), high = low;
  for (int64_t at = 0; at < size; at += WIDTH) {
    Vector values = load<Vector>(elements + at);
    absolute += sum_of_bytes((Bytes)magnitude(values));
    positive += sum_of_bytes((Bytes)(values > 0) & 1);
    low = lesser(values, low);
    high = greater(values, high);
    if constexpr (Element::IS_SIGNED) {
      shifted += sum_of_bytes((Bytes)values ^ 0x80);
      negative += sum_of_bytes((Bytes)(values < 0) & 1);
    }
    for (int half = 0; half < WIDTH; half += WIDTH / 2) {
      Shorts some = Element::widen(elements + at + half);
      squares += add_products(some, some);
    }
  }
  int64_t sizes = sum_of<int64_t>(absolute);
  totals.total += Element::IS_SIGNED ? sum_of<int64_t>(shifted) - 128 * size : sizes;
  totals.absolute += sizes;
  totals.squares += sum_of<int32_t, int64_t>(squares);
  totals.negative += sum_of<int64_t>(negative);
  totals.positive += sum_of<int64_t>(positive);
  totals.reach(least_of<typename Element::Stored>(low));
  totals.reach((typename Element::Stored)~least_of<typename Element::Stored>(~high));
  return size;
}

// The number of true values determines all statistics of bools.
template <> inline int64_t add_bytes<Bool>(const uint8_t *elements, int64_t count, ExactTotals &totals) {
  int64_t size = count / LINE * LINE;
  if (!size) return 0;
  Longs zeros = {};
  for (int64_t at = 0; at < size; at += WIDTH) zeros += sum_of_bytes((Bytes)(load<Bytes>(elements + at) == 0) & 1);
  int64_t found = size - sum_of<int64_t>(zeros);
  totals.total += found;
  totals.absolute += found;
  totals.squares += found;
  totals.positive += found;
  totals.reach(found == size);
  totals.reach(found != 0);
  return size;
}

#endif

// A loop that compilers vectorise. No sum of a part overflows its type.
template <class Element> void add_integers(const uint8_t *elements, int64_t count, ExactTotals &totals) {
  typedef typename Element::Stored Stored;
  typedef typename Element::Sum Sum;
  Sum total = 0, absolute = 0, squares = 0;
  int32_t negative = 0, positive = 0, low = totals.minimum, high = totals.maximum;
  for (int64_t i = 0; i < count; i++) {
    int32_t number = Element::number(read<Stored>(elements + i * (int64_t)sizeof(Stored)));
    total += number;
    absolute += number < 0 ? -number : number;
    squares += (Sum)number * number;
    negative += number < 0;
    positive += number > 0;
    low = number < low ? number : low;
    high = number > high ? number : high;
  }
  totals.total += total;
  totals.absolute += absolute;
  totals.squares += squares;
  totals.negative += negative;
  totals.positive += positive;
  totals.minimum = low;
  totals.maximum = high;
}

template <class Element, bool HASHED>
void scan_integers(const Source &source, int64_t count, int64_t number, Row &row) {
  ExactTotals totals;
  for (int64_t first = 0; first < count; first += source.most()) {
    int64_t some = count - first < source.most() ? count - first : source.most(), done = 0;
    const uint8_t *elements = source.at(first, some, Element::BYTES);
#if defined(__AVX2__)
    if constexpr (Element::BYTES == 1) done = add_bytes<Element>(elements, some, totals);
#endif
    add_integers<Element>(elements + done * Element::BYTES, some - done, totals);
    if (HASHED)
      row.counts.hash += hash_of(elements, some * Element::BYTES, BLOCK * Element::BYTES, number + first / BLOCK);
  }
  double spread = (double)(totals.squares * count - totals.total * totals.total) / (double)count;
  row.reals = {(double)totals.total, (double)totals.absolute, spread, (double)totals.minimum, (double)totals.maximum};
  row.counts.finite = count;
  row.counts.negative = totals.negative;
  row.counts.positive = totals.positive;
}

template <class Element, bool HASHED>
void scan_magnitudes(const Source &source, int64_t count, int64_t number, Row &row) {
  double magnitudes[BLOCK];
  for (int64_t done = 0; done < count; done += BLOCK) {
    int64_t some = count - done < BLOCK ? count - done : BLOCK;
    const uint8_t *elements = source.at(done, some, Element::BYTES);
    Row found;
    clear(found);
    widen_all<Element>(elements, some, magnitudes);
    scan_floats<Float64, false>({(const uint8_t *)magnitudes, nullptr, nullptr, 0, nullptr}, some, 0, found);
    add_row(found, row.reals, row.counts);
    if (HASHED)
      row.counts.hash += hash_of(elements, some * Element::BYTES, BLOCK * Element::BYTES, number + done / BLOCK);
  }
}

template <bool HASHED> void scan_kind(Kind kind, const Source &elements, int64_t count, int64_t number, Row &row) {
  switch (kind) {
    case FLOAT32: return scan_floats<Float32, HASHED>(elements, count, number, row);
    case FLOAT16: return scan_floats<Float16, HASHED>(elements, count, number, row);
    case BFLOAT16: return scan_floats<Brain16, HASHED>(elements, count, number, row);
    case FLOAT8_E4M3FN: return scan_floats<Float8E4M3, HASHED>(elements, count, number, row);
    case FLOAT8_E5M2: return scan_floats<Float8E5M2, HASHED>(elements, count, number, row);
    case FLOAT64: return scan_floats<Float64, HASHED>(elements, count, number, row);
    case BOOL: return scan_integers<Bool, HASHED>(elements, count, number, row);
    case INT8: return scan_integers<Int8, HASHED>(elements, count, number, row);
    case UINT8: return scan_integers<UInt8, HASHED>(elements, count, number, row);
    case INT16: return scan_integers<Int16, HASHED>(elements, count, number, row);
    case UINT16: return scan_integers<UInt16, HASHED>(elements, count, number, row);
    case INT32: return scan_floats<Int32, HASHED>(elements, count, number, row);
    case UINT32: return scan_floats<UInt32, HASHED>(elements, count, number, row);
    case INT64: return scan_floats<Int64, HASHED>(elements, count, number, row);
    case UINT64: return scan_floats<UInt64, HASHED>(elements, count, number, row);
    case COMPLEX64: return scan_magnitudes<Complex64, HASHED>(elements, count, number, row);
    case COMPLEX128: return scan_magnitudes<Complex128, HASHED>(elements, count, number, row);
    case KINDS: return;
  }
}

}  // namespace
