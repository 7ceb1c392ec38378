import { useCallback } from 'react'
import { create } from 'zustand'
import type { ComparedOperator } from '~/api/types'
import { useView } from '~/state/store'

/** What a person wants to see of the compared operators. */
export interface OperatorFilter {
  query: string
  phase: ComparedOperator['phase'] | ''
  only: 'all' | 'different' | 'divergent'
  sort: 'position' | 'name' | 'relative' | 'added'
  descending: boolean
}

interface CompareState {
  /** The comparison that the rest belongs to; another one begins anew. */
  id: string
  filter: OperatorFilter
  /** The step whose operators are listed and colour tree and graph; null: that of the finding. */
  step: number | null
  /** Whether tree and graph are coloured. */
  isColoured: boolean
  /** Whether the verdict is one line: where values are looked at it is, unless a person wants it otherwise. */
  folded: { values: boolean; others: boolean }
  set: (change: Partial<Omit<CompareState, 'set'>>) => void
}

export const noFilter: OperatorFilter = {
  query: '',
  phase: '',
  only: 'all',
  sort: 'position',
  descending: false,
}

export const useCompareState = create<CompareState>()((set) => ({
  id: '',
  filter: noFilter,
  step: null,
  isColoured: true,
  folded: { values: true, others: false },
  set,
}))

/** Begin anew where another comparison is shown. */
export function beginComparison(id: string): void {
  if (useCompareState.getState().id !== id) useCompareState.setState({ id, filter: noFilter, step: null })
}

/** Whether the verdict is folded in what is shown of the comparison, and how to change that. */
export function useFolded(): [boolean, (isFolded: boolean) => void] {
  const kind = useView(({ part }) => (part === 'values' ? 'values' : 'others'))
  const folded = useCompareState((state) => state.folded)
  const fold = useCallback(
    (isFolded: boolean) =>
      useCompareState.setState((state) => ({ folded: { ...state.folded, [kind]: isFolded } })),
    [kind],
  )
  return [folded[kind], fold]
}
