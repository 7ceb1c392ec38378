import { create } from 'zustand'
import type { Direction } from './reach'

/** What stands out in the picture now; apart from the boxes, so that only those whose mark changes are drawn anew. */
interface Marks {
  /** Id of the box that was chosen. */
  chosen: string
  /** Moved to with the keyboard: the box takes the focus when it is drawn. */
  takesFocus: boolean
  /** Id of the box where the run is stopped. */
  current: string
  /** The boxes up or down from one, while they are told apart from the rest. */
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
