import { create } from 'zustand'
import type { Which } from '~/api/types'
import type { NumberFormat } from './formats'

export type Presentation = 'heat-map' | 'table' | 'histogram'

/** The view of a tensor. */
export interface TensorView {
  which: Which
  presentation: Presentation
  /** One entry for each dimension; null: the slice of the element at which the tensor opens. */
  entries: string[] | null
  /** Differences within this fraction of the largest one count as zero. */
  tolerance: number
  /** What statistics and histogram cover. */
  extent: 'tensor' | 'slice'
  /** Row and column of the marked element in the slice; null: the element at which the tensor opens. */
  cell: [number, number] | null
}

const FIRST: TensorView = {
  which: 'current',
  presentation: 'heat-map',
  entries: null,
  tolerance: 0,
  extent: 'tensor',
  cell: null,
}

const REMEMBERED = 'tensight.numbers'
/** Maximum number of tensors whose view is remembered while the page is open. */
const MOST_VIEWS = 200

interface Views {
  views: Record<string, TensorView>
  format: NumberFormat
  colours: 'linear' | 'logarithmic'
  change: (address: string, change: Partial<TensorView>) => void
  setFormat: (change: Partial<NumberFormat>) => void
  setColours: (colours: 'linear' | 'logarithmic') => void
}

function rememberedFormat(): NumberFormat {
  const [notation, digits] = (localStorage.getItem(REMEMBERED) ?? '').split(' ')
  const isNotation = notation === 'auto' || notation === 'decimal' || notation === 'scientific'
  const number = Number(digits)
  return isNotation && Number.isInteger(number) && number >= 0 && number <= 10
    ? { notation, digits: number }
    : { notation: 'auto', digits: 6 }
}

/** The views of tensors, kept while other tabs are open, so that users find them as before. */
export const useTensorViews = create<Views>()((set) => ({
  views: {},
  format: rememberedFormat(),
  colours: 'linear',
  change: (address, change) =>
    set((state) => {
      const { [address]: before = FIRST, ...others } = state.views
      const kept = Object.entries(others).slice(-MOST_VIEWS)
      return { views: { ...Object.fromEntries(kept), [address]: { ...before, ...change } } }
    }),
  setFormat: (change) =>
    set((state) => {
      const format = { ...state.format, ...change }
      localStorage.setItem(REMEMBERED, `${format.notation} ${format.digits}`)
      return { format }
    }),
  setColours: (colours) => set({ colours }),
}))

export function useTensorView(address: string): TensorView {
  return useTensorViews((state) => state.views[address] ?? FIRST)
}
