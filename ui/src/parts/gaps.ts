/** A distance of steps that is this many times as long as usual is a gap. */
const GAP = 4

/**
 * Return a test whether the values between two neighbouring steps of a curve are unknown, so that no line may suggest
 * them. Which distance is usual depends on how often a value was reported.
 */
export function gapsOf(steps: readonly number[]): (from: number, to: number) => boolean {
  const distances = steps.slice(1).map((step, index) => step - (steps[index] ?? step))
  const usual = distances.sort((a, b) => a - b)[Math.floor(distances.length / 2)] ?? 0
  return (from, to) => to - from > GAP * Math.max(1, usual)
}
