import { create } from 'zustand'

/** The state of the list of lines. It is kept while another tab is looked at, and forgotten with the run. */
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
  /** The line of the selected node that was shown already. */
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

function withOrWithout(set: ReadonlySet<string>, one: string, isIn: boolean): ReadonlySet<string> {
  const next = new Set(set)
  if (isIn) next.add(one)
  else next.delete(one)
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
