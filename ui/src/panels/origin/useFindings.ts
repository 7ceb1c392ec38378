import { useMemo } from 'react'
import { useHits, useOrigins, useSession } from '~/api/queries'
import { findings, type Finding } from './findings'

/** Number of nodes with hits, in execution order, in which the first hit is searched. */
const FIRST_HITS = 20

export interface Findings {
  all: Finding[]
  /** Tensors with hits. */
  tensors: number
  isPending: boolean
  error: Error | null
}

/** The findings at the step shown; only origins while nothing hit. */
export function useFindings(): Findings {
  const { data: session } = useSession()
  const hasHits = (session?.hits ?? 0) > 0
  const origins = useOrigins()
  const hits = useHits({ limit: FIRST_HITS })
  const all = useMemo(
    () => findings(origins.data ?? [], hasHits ? (hits.data?.nodes ?? []) : []),
    [origins.data, hits.data, hasHits],
  )
  return {
    all,
    tensors: hasHits ? (hits.data?.tensors ?? 0) : 0,
    isPending: hasHits && (origins.isLoading || hits.isLoading),
    error: origins.error,
  }
}
