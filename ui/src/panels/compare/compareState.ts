import { useCallback } from 'react'
import { create } from 'zustand'
import type { ComparedOperator } from '~/api/types'
import { useView } from '~/state/store'

/** The user's filter and sort order for the compared operators. */
export interface OperatorFilter {
  query: string
  phase: ComparedOperator['phase'] | ''
  only: 'all' | 'different' | 'divergent'
  sort: 'position' | 'name' | 'relative' | 'added'
  descending: boolean
}

interface CompareState {
  /** The comparison that the rest belongs to; another one resets it. */
  id: string
  filter: OperatorFilter
  /** The step whose operators are listed and colour tree and graph; null: that of the finding. */
  step: number | null
  /** Whether tree and graph are coloured. */
  isColoured: boolean
  /** Whether the verdict is folded to one line, by default only beside values. */
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

/** Reset the state if another comparison is shown. */
export function beginComparison(id: string): void {
  if (useCompareState.getState().id !== id) useCompareState.setState({ id, filter: noFilter, step: null })
}

/** Whether the verdict is folded in the part shown, and a function to change that. */
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
