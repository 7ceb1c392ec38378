import { create } from 'zustand'
import type { Direction } from './reach'

/** The highlights of the picture; separate from the boxes, so that only boxes whose mark changes are rendered again. */
interface Marks {
  /** Id of the selected box. */
  chosen: string
  /** Selected with the keyboard: the box takes the focus when it is rendered. */
  takesFocus: boolean
  /** Id of the box where the run is stopped. */
  current: string
  /** The boxes upstream or downstream of a box, while they are highlighted. */
  reach: { from: string; direction: Direction; boxes: ReadonlySet<string> } | null
  set: (change: Partial<Omit<Marks, 'set'>>) => void
}

export const useMarks = create<Marks>()((set) => ({
  chosen: '',
  takesFocus: false,
  current: '',
  reach: null,
  set: (change) => set(change),
}))
