import { useElementSize } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import classes from './curves.module.css'
import { init, optionOf, type Shown } from './chart'

type Drawn = ReturnType<typeof init>

/** The chart; a click reports its position on the step axis. */
export default function Chart(
  props: Omit<Shown, 'height'> & { label: string; onStep: (at: number) => void },
) {
  const { label, onStep, ...shown } = props
  const { ref, width, height } = useElementSize()
  const host = useRef<HTMLDivElement>(null)
  const chart = useRef<Drawn | null>(null)
  const click = useRef(onStep)
  const grids = useRef(0)
  const kinds = new Set(shown.series.map(({ kind }) => kind)).size
  useEffect(() => {
    click.current = onStep
    grids.current = kinds
  }, [onStep, kinds])
  useEffect(() => {
    if (!host.current) return
    const made = init(host.current)
    chart.current = made
    made.getZr().on('click', (event) => {
      const at = [event.offsetX, event.offsetY]
      for (let index = 0; index < grids.current; index++) {
        if (!made.containPixel({ gridIndex: index }, at)) continue
        const position = made.convertFromPixel({ gridIndex: index }, at)
        if (Array.isArray(position) && typeof position[0] === 'number') click.current(position[0])
      }
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
    if (height > 0) chart.current?.setOption(optionOf({ ...shown, height }), { replaceMerge: MERGED })
  })
  return (
    <div ref={ref} className={classes['chart']} role="img" aria-label={label} data-testid="curves-chart">
      <div ref={host} className={classes['host']} />
    </div>
  )
}

/** Everything else, such as the zoom, stays as it is. */
const MERGED = ['grid', 'xAxis', 'yAxis', 'series']
