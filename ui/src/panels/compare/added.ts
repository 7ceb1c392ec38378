import { useComputedColorScheme } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { create } from 'zustand'
import { get } from '~/api/client'
import { keys } from '~/api/queries'
import { colourAt, shareOf, type Scale, type Theme } from '~/panels/overview/scale'
import { css, inkOn, PALETTES } from '~/panels/tensor/palette'
import type { AddedError, AddedErrors } from '~/api/types'

/** The step of a comparison whose added errors colour tree and graph; null: they are not coloured. */
export interface Colouring {
  id: string
  rank: number
  step: number
}

export const useColouring = create<{ of: Colouring | null }>()(() => ({ of: null }))

/** Decades below the largest added error that colours distinguish. */
const DECADES = 6

/** The error that an operator adds, or the largest of several operators. */
export interface Added {
  /** Null: NaN or infinite in only one of the runs. */
  added: number | null
  divergent: number
  largest: number
}

/** Return the largest added error of some entries of a scope; undefined if none is known. */
export function addedOf(
  entries: readonly AddedError[],
  paths: readonly string[],
  largest: number | null,
): Added | undefined {
  const chosen = entries.filter(
    (entry) => paths.includes(entry.path) && (entry.added != null || entry.non_finite),
  )
  if (chosen.length === 0) return undefined
  const divergent = chosen.reduce((sum, entry) => sum + entry.divergent, 0)
  const isBeyond = chosen.some((entry) => entry.non_finite)
  const most = Math.max(0, ...chosen.map((entry) => entry.added ?? 0))
  return { added: isBeyond ? null : most, divergent, largest: largest ?? 0 }
}

/** Return the colour scale over the decades below the largest added error of a step. */
export function addedScale(largest: number): Scale {
  const high = largest > 0 ? largest : 1
  return { kind: 'magnitude', low: high / 10 ** DECADES, high, isCut: true }
}

/** Return the position of an added error on the scale, from 0 to 1. */
export function addedShare(added: number, largest: number): number {
  return added > 0 ? Math.max(0, Math.min(1, shareOf(added, addedScale(largest)))) : 0
}

/** Return the colour of an added error, with a text colour that is readable on it. */
export function addedColour(added: number | null, largest: number, theme: Theme) {
  const colour =
    added === null ? PALETTES[theme].nan : colourAt(addedShare(added, largest), 'magnitude', theme)
  return { back: css(colour), ink: inkOn(colour) }
}

/** Return the scope that lists a path. */
export function scopeAround(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

/** The largest added error of some entries of one scope, with its colours, while tree and graph are coloured. */
export function useAdded(paths: readonly string[]): (Added & { back: string; ink: string }) | undefined {
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const of = useColouring((state) => state.of)
  const scope = scopeAround(paths[0] ?? '')
  const { data } = useScope(of, scope, paths.length > 0)
  if (!of || !data) return undefined
  const added = addedOf(data.scopes[0]?.entries ?? [], paths, data.largest ?? null)
  return added && { ...added, ...addedColour(added.added, added.largest, theme) }
}

/** The largest added error of a step; null if it is not known. */
export function useLargestAdded(of: Colouring | null): number | null {
  return useScope(of, '').data?.largest ?? null
}

/** The added errors of all entries of a scope. */
function useScope(of: Colouring | null, scope: string, isWanted = true) {
  const { id = '', rank, step } = of ?? {}
  return useQuery({
    queryKey: keys.comparison(id, 'added', rank, step, scope),
    queryFn: ({ signal }) =>
      get<AddedErrors>(
        `comparisons/${encodeURIComponent(id)}/added-errors`,
        { rank, step, scope: [scope] },
        signal,
      ),
    enabled: of !== null && isWanted,
  })
}
