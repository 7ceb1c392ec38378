import { useComputedColorScheme } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { create } from 'zustand'
import { get } from '~/api/client'
import { keys } from '~/api/queries'
import { colourAt, shareOf, type Scale, type Theme } from '~/panels/overview/scale'
import { css, inkOn, PALETTES } from '~/panels/tensor/palette'
import type { AddedError, AddedErrors } from '~/api/types'

/** The step of a comparison by whose added errors tree and graph are coloured; null: they are not. */
export interface Colouring {
  id: string
  rank: number
  step: number
}

export const useColouring = create<{ of: Colouring | null }>()(() => ({ of: null }))

/** Decades below the largest added error that colours tell apart. */
const DECADES = 6

/** How far an operator, or all of several, is apart by itself. */
export interface Added {
  /** Null: it is NaN or infinite in one of the runs only. */
  added: number | null
  divergent: number
  largest: number
}

/** The largest of what is known of some entries of a scope; undefined where nothing is. */
export function addedOf(
  entries: readonly AddedError[],
  paths: readonly string[],
  largest: number | null,
): Added | undefined {
  const chosen = entries.filter((one) => paths.includes(one.path) && (one.added != null || one.non_finite))
  if (chosen.length === 0) return undefined
  const divergent = chosen.reduce((sum, one) => sum + one.divergent, 0)
  const isBeyond = chosen.some((one) => one.non_finite)
  const most = Math.max(0, ...chosen.map((one) => one.added ?? 0))
  return { added: isBeyond ? null : most, divergent, largest: largest ?? 0 }
}

/** Colours over the decades below the largest added error of a step. */
export function addedScale(largest: number): Scale {
  const high = largest > 0 ? largest : 1
  return { kind: 'magnitude', low: high / 10 ** DECADES, high, isCut: true }
}

/** How far an added error is on the way to the largest, from 0 to 1. */
export function addedShare(added: number, largest: number): number {
  return added > 0 ? Math.max(0, Math.min(1, shareOf(added, addedScale(largest)))) : 0
}

/** The colour of an added error with the ink that can be read on it. */
export function addedColour(added: number | null, largest: number, theme: Theme) {
  const colour =
    added === null ? PALETTES[theme].nan : colourAt(addedShare(added, largest), 'magnitude', theme)
  return { back: css(colour), ink: inkOn(colour) }
}

/** The scope that lists a path. */
export function scopeAround(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

/** What is known of some entries of one scope, where a comparison colours tree and graph. */
export function useAdded(paths: readonly string[]): (Added & { back: string; ink: string }) | undefined {
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const of = useColouring((state) => state.of)
  const scope = scopeAround(paths[0] ?? '')
  const { data } = useScope(of, scope, paths.length > 0)
  if (!of || !data) return undefined
  const added = addedOf(data.scopes[0]?.entries ?? [], paths, data.largest ?? null)
  return added && { ...added, ...addedColour(added.added, added.largest, theme) }
}

/** The largest added error of a step, as far as it is known. */
export function useLargestAdded(of: Colouring | null): number | null {
  return useScope(of, '').data?.largest ?? null
}

/** What is known of all that a scope lists. */
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
