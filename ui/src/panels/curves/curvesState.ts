import { create } from 'zustand'
import type { AddedTensor } from './series'

/** The user's choice of curves for a run. */
interface CurvesState {
  run: string
  hidden: readonly string[]
  added: readonly AddedTensor[]
  isLogarithmic: boolean
}

const EMPTY: Omit<CurvesState, 'run'> = { hidden: [], added: [], isLogarithmic: false }
const MOST_ADDED = 12

export const useCurvesState = create<CurvesState>()(() => ({ run: '', ...EMPTY }))

/** The choice of curves for a run; another run resets it. */
export function useChosen(run: string): Omit<CurvesState, 'run'> {
  const state = useCurvesState()
  return state.run === run ? state : EMPTY
}

function change(run: string, of: (state: Omit<CurvesState, 'run'>) => Partial<CurvesState>): void {
  useCurvesState.setState((state) => {
    const before = state.run === run ? state : { run, ...EMPTY }
    return { ...before, ...of(before) }
  })
}

export function addTensor(run: string, tensor: AddedTensor): void {
  change(run, ({ added }) => ({
    added: [
      ...added.filter((other) => other.address !== tensor.address || other.statistic !== tensor.statistic),
      tensor,
    ].slice(-MOST_ADDED),
  }))
}

export function removeTensor(run: string, tensor: AddedTensor): void {
  change(run, ({ added }) => ({ added: added.filter((other) => other !== tensor) }))
}

export function toggleSeries(run: string, key: string): void {
  change(run, ({ hidden }) => ({
    hidden: hidden.includes(key) ? hidden.filter((other) => other !== key) : [...hidden, key],
  }))
}

export function setLogarithmic(run: string, isLogarithmic: boolean): void {
  change(run, () => ({ isLogarithmic }))
}
