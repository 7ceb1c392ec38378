import { Loader, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { nodeTensors, useShown } from '~/api/queries'
import { percent, shapeText, short } from '~/parts/numbers'
import { useView, type NodeChoice } from '~/state/store'
import css from './relations.module.css'
import { relationsTexts } from './texts'

/** The statistics of an output at the step shown; loaded when the pointer rests on it. */
export function SlotStatistics({ node, slot }: { node: NodeChoice; slot: number }) {
  const { t } = useTranslation(relationsTexts)
  const run = useView((view) => view.run)
  const { data, error, isPlaceholderData } = useQuery(nodeTensors(run, useShown(), node))
  if (error) return <Text>{error.message}</Text>
  if (!data || isPlaceholderData) return <Loader size="xs" />
  const record = data.find((tensor) => tensor.io === 'output' && tensor.slot === slot)
  const statistics = record?.statistics
  return (
    <Stack gap={2}>
      <Text className="mono" fw={600}>
        {record ? `${record.dtype}${shapeText(record.shape)}` : ''}
      </Text>
      {statistics ? (
        <dl className={css['statistics']}>
          <dt>{t('range')}</dt>
          <dd>{record.scalar || `${short(statistics.min)} … ${short(statistics.max)}`}</dd>
          <dt>{t('mean')}</dt>
          <dd>{short(statistics.mean)}</dd>
          <dt>{t('std')}</dt>
          <dd>{short(statistics.std)}</dd>
          <dt>{t('zeros')}</dt>
          <dd>{percent(statistics.zero_count, statistics.count)}</dd>
          <dt>{t('nan')}</dt>
          <dd>{short(statistics.nan_count)}</dd>
          <dt>{t('inf')}</dt>
          <dd>{short(statistics.neg_inf_count + statistics.pos_inf_count)}</dd>
        </dl>
      ) : (
        <Text c="var(--quiet)">{t('none')}</Text>
      )}
      <Text c="var(--quiet)" size="xs">
        {t('walk')}
      </Text>
    </Stack>
  )
}
