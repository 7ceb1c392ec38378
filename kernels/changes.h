// Compare the elements of a tensor with those of the same tensor before.
#pragma once

#include "elements.h"
#include "interface.h"
#include "vectors.h"

namespace {

// Totals and maxima of non-negative numbers; if a number is NaN, so are the totals, and the maxima are not used.
struct Differences {
  Doubles total = {}, squares = {}, previous = {}, largest = {}, required = {};

  void add(Doubles values, Doubles before, Doubles atol) {
    Doubles change = magnitude(values - before), size = magnitude(before);
    total += change;
    squares += change * change;
    previous += size;
    largest = greater(change, largest);
    Longs beyond = (Longs)(change > atol);
    required = greater((Doubles)((Longs)((change - atol) / size) & beyond), required);
  }
};

template <class Element>
void compare_block(const uint8_t *current, const uint8_t *previous, int64_t count, double atol, Change &change) {
  constexpr int ITEMS = LINE / Element::BYTES;
  constexpr int VECTORS = ITEMS / (int)(sizeof(typename Element::Vector) / sizeof(typename Element::Value));
  int64_t lines = count / ITEMS;
  Differences found;
  Doubles tolerance = Doubles{} + atol;
  for (int64_t line = 0; line < lines; line++) {
    __builtin_prefetch(current + line * LINE + AHEAD_BYTES);
    __builtin_prefetch(previous + line * LINE + AHEAD_BYTES);
    for (int number = 0; number < VECTORS; number++) {
      auto values = Element::at(current + line * LINE, number), before = Element::at(previous + line * LINE, number);
      if constexpr (sizeof(typename Element::Value) == 4) {
        found.add(widen(lower(values)), widen(lower(before)), tolerance);
        found.add(widen(upper(values)), widen(upper(before)), tolerance);
      } else {
        found.add(values, before, tolerance);
      }
    }
  }
  change.total += sum_of<double>(found.total);
  change.squares += sum_of<double>(found.squares);
  change.previous_total += sum_of<double>(found.previous);
  for (int lane = 0; lane < DOUBLES; lane++) {
    if (found.largest[lane] > change.maximum) change.maximum = found.largest[lane];
    if (found.required[lane] > change.required_rtol) change.required_rtol = found.required[lane];
  }
  for (int64_t i = lines * ITEMS; i < count; i++) {
    double before = real_of(Element::value(previous + i * Element::BYTES));
    double difference = __builtin_fabs(real_of(Element::value(current + i * Element::BYTES)) - before);
    double size = __builtin_fabs(before), required = difference > atol ? (difference - atol) / size : 0;
    change.total += difference;
    change.squares += difference * difference;
    change.previous_total += size;
    if (difference > change.maximum) change.maximum = difference;
    if (required > change.required_rtol) change.required_rtol = required;
  }
}

// Add pairs of elements to the totals. A total is not finite if an element is not, or if squares leave the range of
// float64.
void compare(Kind current_kind, const uint8_t *current, Kind previous_kind, const uint8_t *previous, int64_t count,
             double atol, Change *change) {
  int64_t bytes = item_bytes(current_kind), previous_bytes = item_bytes(previous_kind);
  for (int64_t done = 0; done < count; done += BLOCK) {
    const uint8_t *new_block = current + done * bytes, *old_block = previous + done * previous_bytes;
    int64_t some = count - done < BLOCK ? count - done : BLOCK;
    if (current_kind == previous_kind && current_kind == FLOAT32) {
      compare_block<Float32>(new_block, old_block, some, atol, *change);
    } else if (current_kind == previous_kind && current_kind == FLOAT16) {
      compare_block<Float16>(new_block, old_block, some, atol, *change);
    } else if (current_kind == previous_kind && current_kind == BFLOAT16) {
      compare_block<Brain16>(new_block, old_block, some, atol, *change);
    } else if (current_kind == previous_kind && current_kind == FLOAT8_E4M3FN) {
      compare_block<Float8E4M3>(new_block, old_block, some, atol, *change);
    } else if (current_kind == previous_kind && current_kind == FLOAT8_E5M2) {
      compare_block<Float8E5M2>(new_block, old_block, some, atol, *change);
    } else {
      double one[BLOCK], other[BLOCK];
      widen_block(current_kind, new_block, some, one);
      widen_block(previous_kind, old_block, some, other);
      compare_block<Float64>((const uint8_t *)one, (const uint8_t *)other, some, atol, *change);
    }
  }
}

}  // namespace
