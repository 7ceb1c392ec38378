import { useElementSize } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import type { SearchResult } from '~/api/types'
import type { Theme } from '~/panels/overview/scale'
import { historyOption, init, parallelOption, type Words } from './chart'
import classes from './search.module.css'

/** Ranges that the user has drawn on axes, in the units of each axis (for a choice, the index in its list). */
export type Ranges = Readonly<Record<string, [number, number][]>>

/** One of the charts; `onRange` receives the ranges drawn on an axis. */
export default function Chart(props: {
  kind: 'parallel' | 'history'
  result: SearchResult
  target: number
  theme: Theme
  words: Words
  label: string
  onRange: (axis: string, intervals: [number, number][]) => void
}) {
  const { kind, result, target, theme, words, label, onRange } = props
  const { ref, width, height } = useElementSize()
  const host = useRef<HTMLDivElement>(null)
  const chart = useRef<ReturnType<typeof init> | null>(null)
  const tell = useRef(onRange)
  useEffect(() => {
    tell.current = onRange
  }, [onRange])
  useEffect(() => {
    if (!host.current) return
    const made = init(host.current)
    chart.current = made
    made.on('axisareaselected', (event) => {
      const { parallelAxisId, intervals } = event as {
        parallelAxisId?: string
        intervals?: [number, number][]
      }
      if (parallelAxisId !== undefined) tell.current(parallelAxisId, intervals ?? [])
    })
    return () => {
      chart.current = null
      made.dispose()
    }
  }, [])
  useEffect(() => {
    if (width > 0 && height > 0) chart.current?.resize({ width, height })
  }, [width, height])
  useEffect(() => {
    const option = kind === 'parallel' ? parallelOption : historyOption
    chart.current?.setOption(option(result, target, theme, words))
  }, [kind, result, target, theme, words])
  return (
    <div ref={ref} className={classes['chart']} role="img" aria-label={label} data-testid={`search-${kind}`}>
      <div ref={host} className={classes['host']} />
    </div>
  )
}
