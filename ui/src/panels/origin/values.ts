import { useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { Statistics, TensorRecord } from '~/api/types'
import { useView } from '~/state/store'
import { nodeOf, stepOf, type Finding } from './findings'

/** The inputs and outputs of a finding's operator at the step of the finding. */
export function useValues(finding: Finding) {
  const run = useView((view) => view.run)
  const { name, rank, graph } = nodeOf(finding)
  const step = stepOf(finding)
  return useQuery({
    queryKey: keys.step(run, 'origin', name, rank, graph, step),
    queryFn: ({ signal }) =>
      get<TensorRecord[]>(path(run, '/tensors'), { node: name, rank, graph, step }, signal),
    enabled: run !== '',
  })
}

/** Statistics over all inputs or all outputs: bounds and counts. */
export interface Side {
  min: number | null
  max: number | null
  nan: number
  negInf: number
  posInf: number
  /** Number of elements with statistics; 0: nothing is known. */
  elements: number
  /** The bounds of a tensor with finite elements were not recorded, as when MindSpore wrote NaN for them. */
  isUnbounded: boolean
}

export function sideOf(tensors: readonly TensorRecord[], io: 'input' | 'output'): Side {
  const side: Side = { min: null, max: null, nan: 0, negInf: 0, posInf: 0, elements: 0, isUnbounded: false }
  for (const { statistics } of tensors.filter((tensor) => tensor.io === io)) {
    if (!statistics || !isFloating(statistics)) continue
    const { min, max } = statistics
    if (min != null) side.min = side.min === null ? min : Math.min(side.min, min)
    if (max != null) side.max = side.max === null ? max : Math.max(side.max, max)
    side.nan += statistics.nan_count
    side.negInf += statistics.neg_inf_count
    side.posInf += statistics.pos_inf_count
    side.elements += statistics.count
    const notFinite = statistics.nan_count + statistics.neg_inf_count + statistics.pos_inf_count
    if ((min == null || max == null) && notFinite < statistics.count) side.isUnbounded = true
  }
  return side
}

/** Whether an anomaly is already in the known inputs. */
export function wentIn(anomaly: string, input: Side): boolean {
  if (anomaly === 'nan') return input.nan > 0
  return (anomaly === 'inf' || anomaly === 'overflow') && input.negInf + input.posInf > 0
}

function isFloating({ dtype }: Statistics): boolean {
  return /^(b?float|complex)/.test(dtype)
}
