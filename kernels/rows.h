// Rows of totals, and how those of parts are merged.
#pragma once

#include "elements.h"
#include "interface.h"

namespace {

inline void clear(Row &row) {
  row = {};
  row.reals.minimum = INFINITE;
  row.reals.maximum = -INFINITE;
}

// Add the totals of a part; squared deviations by the pairwise formula of Chan, Golub and LeVeque (1979).
inline void add_row(const Row &row, Reals &reals, Counts &counts) {
  const Reals &some = row.reals;
  int64_t before = counts.finite, more = row.counts.finite;
  if (more) {
    double spread = some.squared_deviation;
    if (before) {
      double gap = some.total / more - reals.total / before;
      spread += gap * gap * (more * ((double)before / (before + more)));
    }
    reals.total += some.total;
    reals.absolute_total += some.absolute_total;
    reals.squared_deviation += spread;
    reals.minimum = some.minimum < reals.minimum ? some.minimum : reals.minimum;
    reals.maximum = some.maximum > reals.maximum ? some.maximum : reals.maximum;
  }
  counts.finite = before + more;
  counts.nan += row.counts.nan;
  counts.negative_infinite += row.counts.negative_infinite;
  counts.positive_infinite += row.counts.positive_infinite;
  counts.negative += row.counts.negative;
  counts.positive += row.counts.positive;
  counts.hash += row.counts.hash;
}

}  // namespace
