/** The parts of the charting library that searches need. */
import { LineChart, ParallelChart, ScatterChart } from 'echarts/charts'
import { GridComponent, ParallelComponent, TooltipComponent } from 'echarts/components'
import { init, use as register, type EChartsCoreOption } from 'echarts/core'
import { CanvasRenderer } from 'echarts/renderers'
import type { SearchResult, Trial } from '~/api/types'
import { COLOURS } from '~/panels/curves/colours'
import { INKS } from '~/panels/overview/inks'
import type { Theme } from '~/panels/overview/scale'
import { short } from '~/parts/numbers'
import { bestSoFar, isWide } from './trials'

register([
  LineChart,
  ParallelChart,
  ScatterChart,
  GridComponent,
  ParallelComponent,
  TooltipComponent,
  CanvasRenderer,
])

export { init }

export interface Words {
  best: string
  trial: (number: number) => string
}

/** Return a function that ranks a trial from 0 (worst value) to 1 (best); null without a value. */
function ranks(result: SearchResult, target: number): (trial: Trial) => number | null {
  const values = valuesOf(result, target).sort((a, b) => a - b)
  const positions = new Map(values.map((value, index) => [value, index / Math.max(1, values.length - 1)]))
  const isUp = result.targets[target]?.goal === 'maximize'
  return (trial) => {
    const value = trial.values[target]
    const position = value === undefined ? undefined : positions.get(value)
    return position === undefined ? null : isUp ? position : 1 - position
  }
}

function valuesOf(result: SearchResult, target: number): number[] {
  return result.trials.flatMap(({ values }) => values[target] ?? [])
}

/** Return the scale of a target; logarithmic if one failed trial would compress all others into a line. */
function scaleOf(result: SearchResult, target: number) {
  return { type: isWide(valuesOf(result, target)) ? ('log' as const) : ('value' as const), scale: true }
}

/** Return the colour of a rank, from orange (worst) to blue (best). */
function colourOf(rank: number, theme: Theme): string {
  const [from, to] =
    theme === 'light'
      ? [
          [222, 160, 90],
          [24, 100, 171],
        ]
      : [
          [138, 90, 40],
          [116, 192, 252],
        ]
  const mixed = from.map((channel, index) => Math.round(channel + rank * ((to[index] ?? channel) - channel)))
  return `rgb(${mixed.join(',')})`
}

export function parallelOption(
  result: SearchResult,
  target: number,
  theme: Theme,
  words: Words,
): EChartsCoreOption {
  const ink = INKS[theme]
  const rankOf = ranks(result, target)
  const axis = {
    nameTextStyle: { color: ink.text, fontSize: 11 },
    axisLabel: { color: ink.quiet, fontSize: 10, formatter: axisText },
    axisLine: { lineStyle: { color: ink.quiet } },
    axisTick: { lineStyle: { color: ink.line } },
    areaSelectStyle: { width: 16, borderColor: ink.chosen, color: ink.chosen, opacity: 0.3 },
    nameGap: 12,
  }
  return {
    animation: false,
    parallel: { left: 60, right: 70, top: 34, bottom: 24 },
    parallelAxis: [
      ...result.parameters.map((parameter, dim) => ({
        ...axis,
        id: `param:${parameter.name}`,
        dim,
        name: parameter.name,
        ...(parameter.kind === 'choice'
          ? { type: 'category', data: parameter.choices.map(String) }
          : { type: parameter.log ? 'log' : 'value', min: parameter.low, max: parameter.high }),
      })),
      ...result.targets.map(({ name }, index) => ({
        ...axis,
        id: `target:${name}`,
        dim: result.parameters.length + index,
        name,
        ...scaleOf(result, index),
      })),
    ],
    tooltip: tooltip(theme),
    series: [
      {
        type: 'parallel',
        inactiveOpacity: 0.06,
        activeOpacity: 1,
        tooltip: { formatter: ({ name }: { name: string }) => name },
        data: [...result.trials]
          .map((trial) => ({ trial, rank: rankOf(trial) }))
          // The best trials are drawn on top.
          .sort((a, b) => (a.rank ?? -1) - (b.rank ?? -1))
          .flatMap(({ trial, rank }) =>
            unbroken(coordinates(result, trial)).map((value) => ({
              name: words.trial(trial.number),
              value,
              lineStyle:
                rank === null
                  ? { color: ink.quiet, type: 'dashed', width: 1, opacity: 0.45 }
                  : { color: colourOf(rank, theme), width: 1 + rank, opacity: 0.9 },
            })),
          ),
      },
    ],
  }
}

type Coordinate = string | number | null

/** Return the values of a trial on the axes; null where it has none. */
function coordinates(result: SearchResult, trial: Trial): Coordinate[] {
  const given = result.parameters.map(({ name, kind }) => {
    const value = trial.params[name]
    return value === undefined ? null : kind === 'choice' ? String(value) : Number(value)
  })
  return [...given, ...result.targets.map((_, index) => trial.values[index] ?? null)]
}

/** Split the line of a trial where it has no value: across an axis, it would show a value that the trial does not have. */
export function unbroken(values: readonly Coordinate[]): Coordinate[][] {
  const starts = values.flatMap((value, index) =>
    value !== null && (values[index - 1] ?? null) === null ? index : [],
  )
  return starts.map((start) => {
    const end = values.indexOf(null, start)
    return values.map((value, index) => (index < start || (end >= 0 && index >= end) ? null : value))
  })
}

function axisText(value: number | string): string {
  return typeof value === 'number' ? short(value) : value
}

function tooltip(theme: Theme) {
  const ink = INKS[theme]
  return {
    // Drawn on the canvas: the page's content security policy forbids inline styles.
    renderMode: 'richText',
    confine: true,
    backgroundColor: ink.back,
    borderColor: ink.line,
    textStyle: { color: ink.text, fontSize: 12 },
  }
}

export function historyOption(
  result: SearchResult,
  target: number,
  theme: Theme,
  words: Words,
): EChartsCoreOption {
  const ink = INKS[theme]
  const text = { color: ink.quiet, fontSize: 11 }
  const name = result.targets[target]?.name ?? ''
  const points = result.trials.flatMap((trial) => {
    const value = trial.values[target]
    return value === undefined ? [] : [[trial.number, value]]
  })
  const ill = result.trials.filter(({ state }) => state === 'pruned' || state === 'failed')
  return {
    animation: false,
    // Trials without a value are shown in a separate strip at the bottom.
    grid: [
      { left: 70, right: 20, top: 28, bottom: 46 },
      { left: 70, right: 20, height: 16, bottom: 26 },
    ],
    xAxis: [0, 1].map((gridIndex) => ({
      gridIndex,
      type: 'value',
      minInterval: 1,
      min: 0,
      max: Math.max(1, result.trials.at(-1)?.number ?? 1),
      axisLabel: { ...text, show: gridIndex === 1 },
      axisTick: { show: gridIndex === 1 },
      axisLine: { lineStyle: { color: ink.line } },
      splitLine: { show: false },
    })),
    yAxis: [
      {
        ...scaleOf(result, target),
        name,
        nameTextStyle: text,
        axisLabel: { ...text, formatter: axisText },
        splitLine: { lineStyle: { color: ink.faint } },
      },
      { gridIndex: 1, type: 'value', min: 0, max: 2, show: false },
    ],
    tooltip: tooltip(theme),
    series: [
      {
        type: 'line',
        name: words.best,
        step: 'end',
        showSymbol: false,
        data: bestSoFar(result, target),
        lineStyle: { color: COLOURS[theme][1], width: 1.6 },
        itemStyle: { color: COLOURS[theme][1] },
      },
      {
        type: 'scatter',
        name,
        symbolSize: 8,
        data: points,
        itemStyle: { color: COLOURS[theme][0] },
        tooltip: {
          formatter: ({ value }: { value: [number, number] }) =>
            `${words.trial(value[0])}\n${name} ${short(value[1])}`,
        },
      },
      {
        type: 'scatter',
        symbol: 'triangle',
        symbolSize: 8,
        xAxisIndex: 1,
        yAxisIndex: 1,
        data: ill.map(({ number }) => [number, 1]),
        itemStyle: { color: 'transparent', borderColor: ink.hit, borderWidth: 1.2 },
        tooltip: {
          formatter: ({ dataIndex }: { dataIndex: number }) =>
            `${words.trial(ill[dataIndex]?.number ?? 0)}\n${(ill[dataIndex]?.reason ?? '').slice(0, 100)}`,
        },
      },
    ],
  }
}
