import {
  ActionIcon,
  Combobox,
  SegmentedControl,
  Select,
  Skeleton,
  TextInput,
  useCombobox,
  useComputedColorScheme,
} from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconChartLine, IconPlus, IconX } from '~/parts/icons'
import { lazy, Suspense, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { STATISTICS, type StatisticName } from '~/panels/inspector/history'
import { inspectorTexts } from '~/panels/inspector/texts'
import { useGoToStep } from '~/panels/overview/useGoTo'
import { Failure, Notice } from '~/parts/Notice'
import { short } from '~/parts/numbers'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'
import { COLOURS } from './colours'
import classes from './curves.module.css'
import { addTensor, removeTensor, setLogarithmic, toggleSeries, useChosen } from './curvesState'
import { useCurves, useHistories, useTensorsNamed } from './queries'
import { nearestStep, newest, seriesOf, tensorSeries, type AddedTensor, type Series } from './series'
import { curvesTexts } from './texts'

const Chart = lazy(() => import('./Chart'))

/** Loss, learning rate, gradient norm and statistics of tensors over the steps, also while nothing is watched. */
export default function Curves() {
  const { t } = useTranslation(curvesTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  const { hidden, isLogarithmic } = useChosen(run)
  const goToStep = useGoToStep()
  const { data, error, refetch } = useCurves()
  const kindName = useKindName()
  const { series, tensors } = useSeries(data?.curves)
  const colours = useMemo(
    () => new Map(series.map(({ key }, index) => [key, COLOURS[theme][index % COLOURS[theme].length] ?? ''])),
    [series, theme],
  )
  const visible = series.filter(({ key }) => !hidden.includes(key))
  const lastStep = Math.max(
    data?.last_step ?? 0,
    session?.total_steps ?? 0,
    ...series.map(({ steps }) => steps.at(-1) ?? 0),
  )
  return (
    <div className="fill" data-testid="panel-curves">
      <div className={`heading ${classes['bar'] ?? ''}`}>
        <AddTensor run={run} />
        <SegmentedControl
          aria-label={t('scale')}
          value={isLogarithmic ? 'logarithmic' : 'linear'}
          data={(['linear', 'logarithmic'] as const).map((value) => ({ value, label: t(value) }))}
          onChange={(value) => setLogarithmic(run, value === 'logarithmic')}
        />
        <span className={classes['hint']}>{t('hint')}</span>
      </div>
      {series.length > 0 && (
        <div className={classes['keys']}>
          {series.map((curve) => (
            <Key
              key={curve.key}
              series={curve}
              colour={colours.get(curve.key) ?? ''}
              isHidden={hidden.includes(curve.key)}
              toggle={() => toggleSeries(run, curve.key)}
              remove={
                tensors.has(curve.key)
                  ? () => removeTensor(run, tensors.get(curve.key) as AddedTensor)
                  : undefined
              }
            />
          ))}
        </div>
      )}
      {error && !data ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : !data ? (
        <Skeleton style={{ flex: 1 }} radius={0} />
      ) : series.length === 0 ? (
        <Notice icon={<IconChartLine size={32} />} title={t('empty')} testId="curves-empty">
          {session?.capabilities.live ? t('emptyLive') : t('emptyDump')}
        </Notice>
      ) : (
        <Suspense fallback={<Skeleton style={{ flex: 1 }} radius={0} />}>
          <Chart
            series={visible}
            colours={colours}
            step={session?.state === 'running' ? null : (session?.step ?? null)}
            lastStep={lastStep}
            isLogarithmic={isLogarithmic}
            theme={theme}
            label={t('chart', { names: visible.map(({ name }) => name).join(', ') })}
            words={{
              kind: kindName,
              step: (step) => t('step', { step }),
              nan: t('nan'),
              infinite: t('infinite'),
            }}
            onStep={(at) => {
              const step = nearestStep(visible, at)
              if (step !== null) goToStep(step)
            }}
          />
        </Suspense>
      )}
    </div>
  )
}

/** All curves: those reported by the training, then those of tensors, which can be removed by their keys. */
function useSeries(curves: Parameters<typeof seriesOf>[0] | undefined): {
  series: Series[]
  tensors: ReadonlyMap<string, AddedTensor>
} {
  const { t } = useTranslation(curvesTexts)
  const run = useView((view) => view.run)
  const { added } = useChosen(run)
  const histories = useHistories(added)
  const kindName = useKindName()
  const reported = seriesOf(curves ?? [], (kind, index) =>
    index === null ? kindName(kind) : t('nth', { name: kindName(kind), index }),
  )
  const tensors = new Map<string, AddedTensor>()
  const more = added.map((tensor, index) => {
    const curve = tensorSeries(
      tensor,
      histories[index]?.data ?? [],
      `${shortName(tensor.address)} ${kindName(tensor.statistic)}`,
    )
    tensors.set(curve.key, tensor)
    return curve
  })
  return { series: [...reported, ...more], tensors }
}

function useKindName(): (kind: string) => string {
  const { t } = useTranslation(curvesTexts)
  const { t: statistic } = useTranslation(inspectorTexts)
  return (kind) =>
    STATISTICS.includes(kind as StatisticName)
      ? statistic(`statistics.${kind as StatisticName}`)
      : t(`names.${kind as 'loss'}`, { defaultValue: kind })
}

function shortName(address: string): string {
  const at = parseAddress(address)
  return at ? `${at.node.split('/').slice(-2).join('/')}:${at.slot}` : address
}

function Key(props: {
  series: Series
  colour: string
  isHidden: boolean
  toggle: () => void
  remove: (() => void) | undefined
}) {
  const { t } = useTranslation(curvesTexts)
  const { series, remove } = props
  const value = newest(series)
  const last = series.steps.at(-1)
  const sick = series.sick.at(-1)
  return (
    <span className={classes['key']} data-testid="curve" data-name={series.name}>
      <button
        type="button"
        aria-pressed={!props.isHidden}
        title={t('show', { name: series.name })}
        onClick={props.toggle}
      >
        <span
          className={classes['swatch']}
          style={{ background: props.isHidden ? 'transparent' : props.colour, borderColor: props.colour }}
        />
        {series.name}
        <b className={sick && sick.step === last ? classes['bad'] : ''}>
          {sick && sick.step === last
            ? t(sick.isNan ? 'nan' : 'infinite')
            : value === null
              ? ''
              : short(value)}
        </b>
      </button>
      {remove && (
        <ActionIcon size={16} aria-label={t('remove', { name: series.name })} onClick={remove}>
          <IconX size={11} />
        </ActionIcon>
      )}
    </span>
  )
}

/** A search box for a tensor, with the choice of the statistic to add. */
function AddTensor({ run }: { run: string }) {
  const { t } = useTranslation(curvesTexts)
  const { t: label } = useTranslation(inspectorTexts)
  const [words, setWords] = useState('')
  const [statistic, setStatistic] = useState<StatisticName>('l2_norm')
  const [query] = useDebouncedValue(words.trim(), 200)
  const combobox = useCombobox({ onDropdownClose: () => combobox.resetSelectedOption() })
  const { data: rows = [], isFetched } = useTensorsNamed(query, combobox.dropdownOpened)
  return (
    <>
      <Combobox
        store={combobox}
        width={460}
        position="bottom-start"
        onOptionSubmit={(address) => {
          addTensor(run, { address, statistic })
          setWords('')
          combobox.closeDropdown()
        }}
      >
        <Combobox.Target>
          <TextInput
            aria-label={t('add')}
            placeholder={`${t('add')}: ${t('addHint')}`}
            leftSection={<IconPlus size={13} />}
            w={250}
            value={words}
            onChange={(event) => {
              setWords(event.currentTarget.value)
              combobox.openDropdown()
            }}
            onFocus={() => combobox.openDropdown()}
            onBlur={() => combobox.closeDropdown()}
          />
        </Combobox.Target>
        <Combobox.Dropdown>
          <Combobox.Options mah={260} style={{ overflowY: 'auto' }}>
            {rows.map(({ address }) => {
              const at = parseAddress(address)
              return (
                <Combobox.Option
                  key={address}
                  value={address}
                  title={address}
                  className={classes['option'] ?? ''}
                >
                  <bdi>{at ? `${at.node}:${at.io === 'input' ? 'input.' : ''}${at.slot}` : address}</bdi>
                </Combobox.Option>
              )
            })}
            {isFetched && rows.length === 0 && <Combobox.Empty>{t('noTensor')}</Combobox.Empty>}
          </Combobox.Options>
        </Combobox.Dropdown>
      </Combobox>
      <Select
        aria-label={t('statistic')}
        w={150}
        allowDeselect={false}
        value={statistic}
        data={STATISTICS.map((value) => ({ value, label: label(`statistics.${value}`) }))}
        onChange={(value) => setStatistic(value ?? 'l2_norm')}
      />
    </>
  )
}
