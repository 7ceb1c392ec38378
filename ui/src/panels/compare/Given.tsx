import { Table } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useView, withoutStep } from '~/state/store'
import classes from './compare.module.css'
import type { ComparedTensor, RankComparison } from '~/api/types'
import { compareTexts } from './texts'

/** The inputs and weights that differ, if they are the finding. */
export function Given({ result }: { result: RankComparison }) {
  const { t } = useTranslation(compareTexts)
  const { tensors, differing } = result
  if (tensors.length === 0) return <Notice title={t('givenNone')} />
  return (
    <div
      className={classes['scrolled']}
      tabIndex={0}
      role="group"
      aria-label={t('givenTitle')}
      data-testid="compare-given"
    >
      <Table className={classes['given'] ?? ''} layout="fixed" stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('givenName')}</Table.Th>
            <Table.Th w={120}>{t('columns.rule')}</Table.Th>
            <Table.Th w="38%">{t('columns.relative')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {tensors.map((tensor) => (
            <Row key={`${tensor.name} ${tensor.name_b}`} tensor={tensor} />
          ))}
        </Table.Tbody>
      </Table>
      {differing > tensors.length && (
        <p className={classes['note']}>
          {t('moreTensors', { shown: tensors.length, total: count(differing) })}
        </p>
      )}
    </div>
  )
}

function Row({ tensor }: { tensor: ComparedTensor }) {
  const { t } = useTranslation(compareTexts)
  const openTensor = useView((view) => view.openTensor)
  const { name, name_b, address, agrees } = tensor
  const Icon = agrees ? IconCircleCheck : IconAlertTriangle
  return (
    <Table.Tr data-testid="compared-tensor" data-name={name}>
      <Table.Td>
        {!address ? (
          <span className="mono">{name}</span>
        ) : (
          <button
            type="button"
            className={`${classes['link'] ?? ''} mono`}
            title={address}
            onClick={() => openTensor(withoutStep(address))}
          >
            {name}
          </button>
        )}
        {name_b !== name && <span className="mono"> → {name_b}</span>}
      </Table.Td>
      <Table.Td>{t(`rules.${tensor.rule}`, { defaultValue: tensor.rule })}</Table.Td>
      <Table.Td>
        <span className={classes['proof']} data-agree={agrees}>
          <Icon size={14} role="img" aria-label={t(agrees ? 'agrees' : 'differs')} />
          {tensor.difference?.text ?? t('nothingKnown')}
        </span>
      </Table.Td>
    </Table.Tr>
  )
}
