import { create } from 'zustand'

/** The state of the list of lines. It is kept while another tab is shown, and reset for another run. */
interface Sources {
  run: string
  query: string
  /** The file whose text is shown; empty: the list. */
  file: string
  turned: ReadonlySet<string>
  openLines: ReadonlySet<string>
  cursor: string
  target: string
  scrollOffset: number
  /** The line of the selected node to which the list has already scrolled. */
  shown: string
}

const fresh: Sources = {
  run: '',
  query: '',
  file: '',
  turned: new Set(),
  openLines: new Set(),
  cursor: '',
  target: '',
  scrollOffset: 0,
  shown: '',
}

interface SourcesActions {
  set: (change: Partial<Sources>) => void
  reset: (run: string) => void
  turnFile: (file: string) => void
  setLineOpen: (name: string, isOpen: boolean) => void
}

function withOrWithout(set: ReadonlySet<string>, key: string, isIn: boolean): ReadonlySet<string> {
  const next = new Set(set)
  if (isIn) next.add(key)
  else next.delete(key)
  return next
}

export const useSourcesState = create<Sources & SourcesActions>()((set) => ({
  ...fresh,
  set: (change) => set(change),
  reset: (run) => set({ ...fresh, run }),
  turnFile: (file) => set(({ turned }) => ({ turned: withOrWithout(turned, file, !turned.has(file)) })),
  setLineOpen: (name, isOpen) =>
    set(({ openLines }) => ({ openLines: withOrWithout(openLines, name, isOpen) })),
}))
