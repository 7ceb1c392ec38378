import { useEffect, useState } from 'react'
import { layOut, type Layout } from './layout'
import { structureOf, type Picture } from './picture'

interface Drawn {
  structure: string
  picture: Picture
  layout: Layout
}

/** The last picture with a layout, and whether a newer one is being laid out; marks change without a new layout. */
export function useLayout(picture: Picture | undefined) {
  const [drawn, setDrawn] = useState<Drawn | null>(null)
  const [error, setError] = useState<Error | null>(null)
  const structure = picture ? structureOf(picture) : ''
  const isLaidOut = drawn?.structure === structure
  useEffect(() => {
    if (!picture || isLaidOut) return
    let isWanted = true
    layOut(picture, structure, () => isWanted).then(
      (layout) => {
        if (!isWanted || !layout) return
        setError(null)
        setDrawn({ structure, picture, layout })
      },
      (reason: unknown) => {
        if (isWanted) setError(reason instanceof Error ? reason : new Error(String(reason)))
      },
    )
    return () => {
      isWanted = false
    }
    // Pictures of the same structure differ only in their marks.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [structure, isLaidOut])
  return {
    picture: isLaidOut && picture ? picture : drawn?.picture,
    layout: drawn?.layout,
    isBusy: picture !== undefined && !isLaidOut,
    error,
  }
}
