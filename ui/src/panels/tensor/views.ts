import { create } from 'zustand'
import type { Which } from '~/api/types'
import type { NumberFormat } from './formats'

export type Presentation = 'heat-map' | 'table' | 'histogram'

/** How one tensor is looked at. */
export interface TensorView {
  which: Which
  presentation: Presentation
  /** One entry for each dimension; null: the slice of the element at which the tensor opens. */
  entries: string[] | null
  /** Of a difference: what is within this share of the largest one counts as none. */
  tolerance: number
  /** What statistics and histogram are of. */
  extent: 'tensor' | 'slice'
  /** Row and column of the slice that is marked; null: of the element at which the tensor opens. */
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
/** Tensors whose view is remembered while the page is open. */
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
  const known = notation === 'auto' || notation === 'decimal' || notation === 'scientific'
  const number = Number(digits)
  return known && Number.isInteger(number) && number >= 0 && number <= 10
    ? { notation, digits: number }
    : { notation: 'auto', digits: 6 }
}

/** How each tensor is looked at: kept while another tab is open, so that one finds it again as one left it. */
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
