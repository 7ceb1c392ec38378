import { useCallback } from 'react'
import { create } from 'zustand'
import { useView } from '~/state/store'

const REMEMBERED = 'tensight.banner'

/** Whether the banner is folded to one line, by default only beside values. */
interface Folding {
  pictures: boolean
  values: boolean
  fold: (what: Partial<Pick<Folding, 'pictures' | 'values'>>) => void
}

const useFoldings = create<Folding>()((set, get) => ({
  pictures: localStorage.getItem(`${REMEMBERED}.pictures`) === 'folded',
  values: localStorage.getItem(`${REMEMBERED}.values`) !== 'open',
  fold: (what) => {
    set(what)
    for (const kind of ['pictures', 'values'] as const) {
      localStorage.setItem(`${REMEMBERED}.${kind}`, get()[kind] ? 'folded' : 'open')
    }
  },
}))

/** Whether the banner is folded on the open tab, and a function to change that. */
export function useFolded(): [boolean, (isFolded: boolean) => void] {
  const kind = useView(({ tab }) => (tab === 'compare' || tab.startsWith('tensor') ? 'values' : 'pictures'))
  const isFolded = useFoldings((state) => state[kind])
  const fold = useFoldings((state) => state.fold)
  return [isFolded, useCallback((next: boolean) => fold({ [kind]: next }), [fold, kind])]
}
